// SPDX-License-Identifier: Apache-2.0
#include "agent/run/top.h"

#include <stdio.h>
#include <unistd.h>

#include <iterator>
#include <thread>

#include "agent/answer/answer.h"
#include "agent/answer/table.h"
#include "agent/run/scheduler_search.h"
#include "agent/run/terminal_screen.h"

namespace gpuloom::run {
namespace {

using Clock = std::chrono::steady_clock;

// Keys sort as --sort does: by the first letter of the name.
bool TakeOrder(char key, TopOrder* order) {
  for (size_t i = 0; i < std::size(kTopOrders); ++i) {
    if (key == kTopOrders[i][0]) {
      *order = static_cast<TopOrder>(i);
      return true;
    }
  }
  return false;
}

// The line above the tables. The first look has nothing to compare with: "measuring".
std::string Head(const TopView& view, TopOrder order) {
  std::string sorts;
  for (size_t i = 0; i < std::size(kTopOrders); ++i) {
    const std::string name = kTopOrders[i];
    const bool is_chosen = static_cast<size_t>(order) == i;
    sorts += std::string(sorts.empty() ? "" : ", ") + (is_chosen ? "[" + name + "]" : name);
  }
  return "gpuloom top, " +
         (view.seconds ? "over " + Decimal(*view.seconds) + " s" : std::string("measuring")) +
         ". Keys: t m k w n sort by " + sorts + "; q ends\n\n";
}

std::string Lines(const std::vector<std::string>& troubles) {
  std::string text;
  for (const std::string& trouble : troubles) text += "gpuloom: " + trouble + "\n";
  return text;
}

TopView ViewOf(const AllFigures& before, const AllFigures& now, TopOrder order) {
  TopView view = Compare(before.schedulers, now.schedulers, order);
  AddSilent(now.silent, &view);
  return view;
}

int ShowOnScreen(TopCommand command, AllFigures before) {
  TerminalScreen screen;
  AllFigures now = before;
  // Without an earlier look all rates are unknown, not zero.
  before = {};
  for (;;) {
    const Clock::time_point next = Clock::now() + command.interval;
    for (;;) {
      const TopView view = ViewOf(before, now, command.order);
      // What is wrong above the tables, whose ends a small screen does not show.
      screen.Draw(Head(view, command.order) +
                  (now.AllTroubles().empty() ? "" : Lines(now.AllTroubles()) + "\n") +
                  FormatTop(view));
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(next - Clock::now());
      if (left <= std::chrono::milliseconds(0)) break;
      const char key = screen.WaitForKey(left);
      if (key == 'q') return now.AllTroubles().empty() ? kGood : kNotGood;
      (void)TakeOrder(key, &command.order);
    }
    before = std::move(now);
    now = AskSchedulers(command.state_dir);
  }
}

// Sleeps before each table: the first one needs an interval, too.
int PrintAgainAndAgain(const TopCommand& command, AllFigures before) {
  for (int printed = 0;; ++printed) {
    std::this_thread::sleep_for(command.interval);
    AllFigures now = AskSchedulers(command.state_dir);
    const TopView view = ViewOf(before, now, command.order);
    const bool is_first = printed == 0;
    if (command.format == Format::kTable) {
      fputs(((is_first ? "" : "\n") + FormatTop(view)).c_str(), stdout);
    } else {
      const bool is_yaml = command.format == Format::kYaml;
      // A stream of documents, as YAML has it; JSON's need nothing between them.
      fputs(((is_yaml && !is_first ? "---\n" : "") + FormatDocument(JsonOf(view), command.format))
                .c_str(),
            stdout);
    }
    fputs(Lines(now.AllTroubles()).c_str(), stderr);
    // Nobody reads any more.
    if (fflush(stdout) != 0) return kNotGood;
    if (printed + 1 == command.times) return now.AllTroubles().empty() ? kGood : kNotGood;
    before = std::move(now);
  }
}

}  // namespace

int Top(TopCommand command) {
  AllFigures first = AskSchedulers(command.state_dir);
  if (first.has_no_gpu) {
    if (command.format != Format::kTable) {
      fputs(FormatDocument(JsonOf(TopView()), command.format).c_str(), stdout);
    }
    fprintf(stderr, "gpuloom: %s\n", kNoGpu);
    return kGood;
  }
  if (first.none_found) {
    fputs(Lines(first.troubles).c_str(), stderr);
    return kNotGood;
  }
  const bool is_screen =
      command.times == 0 && command.format == Format::kTable && isatty(STDOUT_FILENO) != 0;
  return is_screen ? ShowOnScreen(std::move(command), std::move(first))
                   : PrintAgainAndAgain(command, std::move(first));
}

}  // namespace gpuloom::run
