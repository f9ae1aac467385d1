// SPDX-License-Identifier: Apache-2.0
// `gpuloom top` beside a real scheduler, executor and software GPU, and on a terminal.
#include "agent/run/top.h"

#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>
#include <utmp.h>

#include <cmath>
#include <fstream>

#include "agent/run/testing/run_fixture.h"
#include "proto/channel/unique_fd.h"

namespace gpuloom::run {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kEnter[] = "\x1b[?1049h";
constexpr char kLeave[] = "\x1b[?7h\x1b[?25h\x1b[?1049l";

class TopTest : public GpuloomRun {
 protected:
  pid_t Tenant(const std::string& name, const std::string& program = GPULOOM_PYTHON,
               const std::vector<std::string>& options = {}) {
    const pid_t pid =
        Start({program, GPULOOM_COUNTING_TENANT, "count", root_ / name, root_ / "stop"}, options);
    EXPECT_TRUE(Within(seconds(60), [&] { return Read(root_ / name).ends_with("\n"); }))
        << Errors();
    return pid;
  }
  // What the command prints.
  std::string Print(std::vector<std::string> arguments, int exit_status = 0) {
    std::filesystem::remove(root_ / "out");
    arguments.insert(arguments.end(), {"--state-dir", state_});
    EXPECT_EQ(Gpuloom(arguments), exit_status) << Errors();
    return Output();
  }
  void Stop(pid_t tenant) {
    std::ofstream(root_ / "stop") << "now";
    EXPECT_EQ(Wait(tenant), 0) << Errors();
    std::filesystem::remove(root_ / "stop");
  }
};

// `gpuloom top` with a terminal of its own.
class Terminal {
 public:
  Terminal(const std::string& state_dir, winsize size) {
    int master = -1, slave = -1;
    EXPECT_EQ(openpty(&master, &slave, nullptr, nullptr, &size), 0);
    master_.Reset(master);
    slave_.Reset(slave);
    EXPECT_EQ(tcgetattr(slave, &before_), 0);
    pid_ = fork();
    if (pid_ == 0) {
      login_tty(slave);
      close(master);
      execl(GPULOOM_PROGRAM, GPULOOM_PROGRAM, "top", "--interval", "1s", "--state-dir",
            state_dir.c_str(), nullptr);
      _exit(127);
    }
  }
  ~Terminal() {
    if (pid_ == 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

  void Type(const std::string& keys) const {
    EXPECT_EQ(write(master_.get(), keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
  }
  void Resize(winsize size) const { EXPECT_EQ(ioctl(master_.get(), TIOCSWINSZ, &size), 0); }
  void Signal(int number) const { kill(pid_, number); }

  // Until it has written this after what was read before. What it wrote until then is forgotten.
  bool Writes(const std::string& text) {
    return Within(seconds(60), [&] {
      ReadMore();
      const size_t at = written_.find(text);
      if (at == written_.npos) return false;
      written_.erase(0, at + text.size());
      return true;
    });
  }
  // One whole screen, drawn after what was read before: its lines, without their ends.
  std::vector<std::string> Screen() {
    std::vector<std::string> lines;
    EXPECT_TRUE(Writes("\x1b[H"));
    EXPECT_TRUE(Within(seconds(60), [&] {
      ReadMore();
      return written_.find("\x1b[J") != written_.npos;
    }));
    std::istringstream drawn(written_.substr(0, written_.find("\x1b[J")));
    for (std::string line; std::getline(drawn, line);) {
      const size_t end = line.find("\x1b[K");
      EXPECT_NE(end, line.npos) << line;
      lines.push_back(line.substr(0, end));
    }
    return lines;
  }
  bool IsAsBefore() const {
    termios now = {};
    EXPECT_EQ(tcgetattr(slave_.get(), &now), 0);
    return now.c_lflag == before_.c_lflag && now.c_iflag == before_.c_iflag &&
           now.c_oflag == before_.c_oflag && now.c_cc[VMIN] == before_.c_cc[VMIN];
  }
  // waitpid's status.
  int WaitFor(int options) {
    int status = 0;
    EXPECT_TRUE(Within(seconds(60), [&] {
      ReadMore();  // or it waits for room
      return waitpid(pid_, &status, WNOHANG | options) == pid_;
    }));
    if (WIFEXITED(status) || WIFSIGNALED(status)) pid_ = 0;
    ReadMore();
    return status;
  }
  const std::string& rest() const { return written_; }

 private:
  void ReadMore() {
    pollfd readable = {master_.get(), POLLIN, 0};
    char buffer[4096];
    while (poll(&readable, 1, 0) > 0 && (readable.revents & POLLIN) != 0) {
      const ssize_t got = read(master_.get(), buffer, sizeof(buffer));
      if (got <= 0) return;
      written_.append(buffer, static_cast<size_t>(got));
    }
  }

  channel::UniqueFd master_, slave_;
  termios before_{};
  pid_t pid_ = 0;
  std::string written_;
};

TEST_F(TopTest, SaysWhatTenantsHadInTheInterval) {
  const pid_t tenant = Tenant("one");
  Json top;
  // It is alone: the GPU's time is its own, but where an executor's report came between the two questions.
  ASSERT_TRUE(Within(seconds(60), [&] {
    top = Json::parse(Print({"top", "--once", "-o", "json", "--interval", "1s"}));
    return top["tenants"].size() == 1 && top["tenants"][0]["gpu_share"] > 0 &&
           top["tenants"][0]["kernels_per_second"] > 0 && top["gpus"].size() == 1 &&
           std::abs(top["tenants"][0]["gpu_share"].get<double>() -
                    top["gpus"][0]["busy"].get<double>()) < 1e-6;
  })) << top;
  EXPECT_GE(top["seconds"], 1.0);
  const Json& one = top["tenants"][0];
  EXPECT_EQ(one["namespace"], "local");
  EXPECT_EQ(one["state"], "runs");
  EXPECT_GT(one["memory_used_bytes"], 0);
  EXPECT_EQ(one["gpu"], top["gpus"][0]["gpu"]);

  const std::string table = Print({"top", "-n", "2", "--interval", "1s"});
  EXPECT_THAT(table, Not(HasSubstr("\x1b"))) << "no terminal, no sequences";
  const size_t second = table.find("GPU   ", table.find("STATE"));
  EXPECT_NE(second, table.npos) << table;
  EXPECT_NE(table.find(one["pod"].get<std::string>(), second), table.npos) << table;
  EXPECT_THAT(Print({"top", "-n", "2", "--interval", "1s", "-o", "yaml"}),
              HasSubstr("\n---\nseconds: "));
  Stop(tenant);
}

TEST_F(TopTest, WithoutASchedulerItSaysSo) {
  std::filesystem::create_directories(state_);
  EXPECT_EQ(Print({"top"}, 1), "");
  EXPECT_THAT(Errors(), HasSubstr("no scheduler is found in " + state_.string()));
}

TEST_F(TopTest, CtrlCLeavesTheTerminalAsItWas) {
  const pid_t tenant = Tenant("one");
  Terminal terminal(state_, {24, 200, 0, 0});
  ASSERT_TRUE(terminal.Writes(kEnter));
  EXPECT_THAT(terminal.Screen()[0], HasSubstr("gpuloom top, measuring"));
  EXPECT_FALSE(terminal.IsAsBefore()) << "keys come one by one";
  ASSERT_TRUE(terminal.Writes("gpuloom top, over ")) << terminal.rest();
  terminal.Type("\x03");
  const int status = terminal.WaitFor(0);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT) << status;
  EXPECT_TRUE(terminal.IsAsBefore());
  EXPECT_TRUE(terminal.rest().ends_with(kLeave)) << terminal.rest();
  Stop(tenant);
}

TEST_F(TopTest, KeysSortAndEndIt) {
  const pid_t tenant = Tenant("one");
  Terminal terminal(state_, {24, 200, 0, 0});
  ASSERT_TRUE(terminal.Writes("[time]"));
  terminal.Type("m");
  ASSERT_TRUE(terminal.Writes("[memory]"));
  terminal.Type("q");
  const int status = terminal.WaitFor(0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_TRUE(terminal.IsAsBefore());
  EXPECT_TRUE(terminal.rest().ends_with(kLeave)) << terminal.rest();
  Stop(tenant);
}

TEST_F(TopTest, ItFitsTheTerminalWhateverItsSize) {
  const pid_t tenant = Tenant("one");
  Terminal terminal(state_, {24, 200, 0, 0});
  EXPECT_EQ(terminal.Screen().size(), 7u) << "what it is, a GPU, a tenant";
  terminal.Resize({4, 30, 0, 0});
  std::vector<std::string> lines;
  ASSERT_TRUE(Within(seconds(60), [&] {
    lines = terminal.Screen();
    return lines.size() == 4;
  }));
  for (const std::string& line : lines) EXPECT_LE(line.size(), 32u) << line << ": … has 3 bytes";
  EXPECT_EQ(lines[3], "… 4 more lines");
  terminal.Signal(SIGTERM);
  const int status = terminal.WaitFor(0);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM) << status;
  EXPECT_TRUE(terminal.IsAsBefore());
  Stop(tenant);
}

TEST_F(TopTest, WhatIsWrongIsSeenOnASmallScreenToo) {
  const pid_t tenant = Tenant("one");
  std::filesystem::create_directories(state_ / "gpus/GPU-2");
  Terminal terminal(state_, {5, 200, 0, 0});
  const std::vector<std::string> lines = terminal.Screen();
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_THAT(lines[2], HasSubstr("gpuloom: no scheduler runs for GPU-2"));
  EXPECT_THAT(lines[4], HasSubstr("more lines"));
  terminal.Type("q");
  const int status = terminal.WaitFor(0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 1) << status;
  std::filesystem::remove_all(state_ / "gpus");
  Stop(tenant);
}

TEST_F(TopTest, StoppedItGivesTheTerminalBackAndTakesItAgain) {
  const pid_t tenant = Tenant("one");
  Terminal terminal(state_, {24, 200, 0, 0});
  ASSERT_TRUE(terminal.Writes(kEnter));
  terminal.Screen();
  terminal.Type("\x1a");
  int status = terminal.WaitFor(WUNTRACED);
  EXPECT_TRUE(WIFSTOPPED(status)) << status;
  EXPECT_TRUE(terminal.IsAsBefore());
  EXPECT_TRUE(terminal.rest().ends_with(kLeave)) << terminal.rest();
  terminal.Signal(SIGCONT);
  ASSERT_TRUE(terminal.Writes(kEnter));
  terminal.Screen();
  EXPECT_FALSE(terminal.IsAsBefore());
  terminal.Type("q");
  status = terminal.WaitFor(0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_TRUE(terminal.IsAsBefore());
  Stop(tenant);
}

TEST_F(TopTest, Malicious_ATenantsNamesNeverControlTheTerminal) {
  const std::filesystem::path program = root_ /
                                        "\x1b[2J\xc2\x9b"
                                        "2J\x9b\x07";
  std::ofstream(program) << "#!/bin/sh\nexec " GPULOOM_PYTHON " \"$@\"\n";
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  const pid_t tenant = Tenant("one", program, {"--domain", "\x1b]0;mine\x07"});
  for (const char* command : {"tenants", "gpus", "version"}) {
    for (const char* format : {"table", "json", "yaml"}) {
      const std::string text = Print({command, "-o", format});
      EXPECT_GT(text.size(), 10u);
      for (const char* sequence : {"\x1b", "\x9b", "\x07"}) {
        EXPECT_THAT(text, Not(HasSubstr(sequence))) << command << format;
      }
    }
  }
  EXPECT_THAT(Print({"tenants"}), HasSubstr("\\x1b[2J\\xc2\\x9b2J\\x9b\\x07"));
  Terminal terminal(state_, {24, 250, 0, 0});
  const std::vector<std::string> lines = terminal.Screen();
  ASSERT_EQ(lines.size(), 7u);
  EXPECT_THAT(lines[6], HasSubstr("\\x1b[2J\\xc2\\x9b2J\\x9b\\x07"));
  EXPECT_THAT(lines[6], Not(HasSubstr("\x1b")));
  terminal.Type("q");
  terminal.WaitFor(0);
  Stop(tenant);
}

}  // namespace
}  // namespace gpuloom::run
