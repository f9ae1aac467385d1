// SPDX-License-Identifier: Apache-2.0
// A terminal as a screen that is redrawn again and again, with escape sequences that all current terminals know. Its
// former state and content are restored when the object ends, and when a signal ends or stops the process. At most one
// object exists, on the stack of its command; one thread. Signal handlers that it has installed use the terminal until
// the object ends.
#pragma once

#include <chrono>
#include <string>

namespace gpuloom::run {

class TerminalScreen {
 public:
  // Draws on standard output; keys come from standard input, if that is a terminal, too.
  TerminalScreen();
  ~TerminalScreen();
  TerminalScreen(const TerminalScreen&) = delete;
  TerminalScreen& operator=(const TerminalScreen&) = delete;

  // Draws what fits (FitToScreen). `text` has been through OneLine, line by line.
  void Draw(const std::string& text) const;

  // Waits for a key and returns it; 0 if the time is over or the terminal's size has changed.
  char WaitForKey(std::chrono::milliseconds time);

 private:
  bool has_keys_ = false;
};

// The part of `text` that a screen of this size shows, each line cut to its width. If there are more lines, the last
// one says how many.
std::string FitToScreen(const std::string& text, size_t columns, size_t rows);

}  // namespace gpuloom::run
