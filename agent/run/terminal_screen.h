// SPDX-License-Identifier: Apache-2.0
// A terminal as a screen that is drawn again and again, by the sequences that every terminal of today knows. It is left as it
// was found, its former content included: when the object ends, and when a signal ends or stops the process. At most one
// exists; one thread.
#pragma once

#include <chrono>
#include <string>

namespace gpuloom::run {

class TerminalScreen {
 public:
  // Of standard output; keys come from standard input, if that is a terminal too.
  TerminalScreen();
  ~TerminalScreen();
  TerminalScreen(const TerminalScreen&) = delete;
  TerminalScreen& operator=(const TerminalScreen&) = delete;

  // Lines that do not fit are cut, and said to be more. `text` has been through OneLine, line by line.
  void Draw(const std::string& text) const;

  // Until a key is pressed, which it returns, or the time is over or the size has changed: then 0.
  char WaitForKey(std::chrono::milliseconds time);

 private:
  bool has_keys_ = false;
};

// The part of `text` that a screen of this size shows, each line cut to it. The last line says how many there are below.
std::string FitToScreen(const std::string& text, size_t columns, size_t rows);

}  // namespace gpuloom::run
