// SPDX-License-Identifier: Apache-2.0
#include "agent/run/terminal_screen.h"

#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <vector>

#include "agent/answer/table.h"

namespace gpuloom::run {
namespace {

// The other screen, no cursor, no new line by itself at the right margin.
constexpr std::string_view kEnter = "\x1b[?1049h\x1b[?25l\x1b[?7l";
constexpr std::string_view kLeave = "\x1b[?7h\x1b[?25h\x1b[?1049l";
constexpr std::string_view kHome = "\x1b[H";
constexpr std::string_view kClearLine = "\x1b[K";
constexpr std::string_view kClearBelow = "\x1b[J";

constexpr int kEndingSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

// The data that signal handlers need. Written before the handlers are installed.
termios found;  // as the terminal was
termios used;   // without echo, key by key
bool changes_keys = false;

// Uses system calls only, which a signal handler may make.
void Write(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno != EINTR) return;
    if (written > 0) text.remove_prefix(static_cast<size_t>(written));
  }
}

void Enter() {
  // First: in the background this stops the process until it is in the foreground.
  if (changes_keys) tcsetattr(STDIN_FILENO, TCSADRAIN, &used);
  Write(kEnter);
}

void Leave() {
  Write(kLeave);
  if (changes_keys) tcsetattr(STDIN_FILENO, TCSADRAIN, &found);
}

void OnEnd(int signal_number) {
  const int error = errno;
  Leave();
  signal(signal_number, SIG_DFL);
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, signal_number);
  raise(signal_number);
  sigprocmask(SIG_UNBLOCK, &only, nullptr);  // here it ends
  errno = error;
}

void OnStop(int) {
  const int error = errno;
  Leave();
  raise(SIGSTOP);  // here it stands until SIGCONT
  Enter();
  errno = error;
}

void OnSize(int) {}  // interrupts ppoll

void Handle(int signal_number, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  // None within another: each of them changes the terminal.
  for (const int other : kEndingSignals) sigaddset(&action.sa_mask, other);
  sigaddset(&action.sa_mask, SIGTSTP);
  action.sa_flags = SA_RESTART;
  sigaction(signal_number, &action, nullptr);
}

}  // namespace

TerminalScreen::TerminalScreen() {
  has_keys_ = isatty(STDIN_FILENO) != 0 && tcgetattr(STDIN_FILENO, &found) == 0;
  if (has_keys_) {
    used = found;
    used.c_lflag &= ~static_cast<tcflag_t>(ECHO | ICANON);
    used.c_cc[VMIN] = 1;
    used.c_cc[VTIME] = 0;
    changes_keys = true;
  }
  // Comes only while ppoll waits, so that none is missed.
  sigset_t size;
  sigemptyset(&size);
  sigaddset(&size, SIGWINCH);
  sigprocmask(SIG_BLOCK, &size, nullptr);
  Handle(SIGWINCH, OnSize);
  Handle(SIGTSTP, OnStop);
  for (const int signal_number : kEndingSignals) Handle(signal_number, OnEnd);
  Enter();
}

TerminalScreen::~TerminalScreen() {
  Leave();
  changes_keys = false;
  for (const int signal_number : kEndingSignals) signal(signal_number, SIG_DFL);
  signal(SIGTSTP, SIG_DFL);
  signal(SIGWINCH, SIG_DFL);
}

void TerminalScreen::Draw(const std::string& text) const {
  winsize size = {};
  // A terminal that does not say has the size that all had once.
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) {
    size.ws_col = 80;
    size.ws_row = 24;
  }
  std::string drawn(kHome);
  const std::string fitting = FitToScreen(text, size.ws_col, size.ws_row);
  for (const char c : fitting) {
    if (c == '\n') drawn += std::string(kClearLine) + "\r";
    drawn += c;
  }
  // The last line has no end: it would scroll.
  drawn += std::string(kClearLine) + std::string(kClearBelow);
  Write(drawn);
}

char TerminalScreen::WaitForKey(std::chrono::milliseconds time) {
  sigset_t mask;
  sigprocmask(SIG_BLOCK, nullptr, &mask);
  sigdelset(&mask, SIGWINCH);
  const timespec limit = {static_cast<time_t>(time.count() / 1000),
                          (time.count() % 1000) * 1'000'000};
  pollfd keys = {has_keys_ ? STDIN_FILENO : -1, POLLIN, 0};
  if (ppoll(&keys, 1, &limit, &mask) <= 0) return 0;
  char key = 0;
  if (read(STDIN_FILENO, &key, 1) == 1) return key;
  has_keys_ = false;  // its other end is gone
  return 0;
}

std::string FitToScreen(const std::string& text, size_t columns, size_t rows) {
  std::vector<std::string_view> lines;
  std::string_view rest = text;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    lines.push_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  const bool fits = lines.size() <= rows;
  const size_t shown = fits ? lines.size() : rows - 1;
  std::string fitting;
  for (size_t i = 0; i < shown; ++i) {
    fitting += (i == 0 ? "" : "\n") + CutToLetters(lines[i], columns);
  }
  if (fits) return fitting;
  const std::string more = "… " + std::to_string(lines.size() - shown) + " more lines";
  return fitting + (shown == 0 ? "" : "\n") + CutToLetters(more, columns);
}

}  // namespace gpuloom::run
