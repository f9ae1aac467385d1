// SPDX-License-Identifier: Apache-2.0
// What somebody reaches who has taken over an executor: nothing beyond it. The code that tries runs
// inside a confined executor, as a part of the driver (intruder_library.cc), while another domain's
// executor, the scheduler and a process of the scheduler's user stand by.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "proto/channel/unique_fd.h"
#include "proto/control/messages.h"
#include "proto/wire/session.h"
#include "tests/integration/stack.h"

namespace gpuloom::testing {
namespace {

constexpr uint32_t kSomebody = 65534;

// What the kernel lacks, by its system calls. Without Landlock there is nobody but the user to
// keep files; without unshare there are no namespaces, as under Kubernetes' RuntimeDefault.
constexpr char kNothing[] = "";
#if defined(__x86_64__)
#define GPULOOM_UNSHARE "272"
#else
#define GPULOOM_UNSHARE "97"
#endif
constexpr char kNamespaces[] = GPULOOM_UNSHARE;
constexpr char kLandlock[] = "444,445,446";
constexpr char kBoth[] = "444,445,446," GPULOOM_UNSHARE;

struct Rights {
  const char* name;
  uint32_t user;
  bool are_charts;
  const char* lacks;
};

// For the names of failed tests.
[[maybe_unused]] void PrintTo(const Rights& rights, std::ostream* out) { *out << rights.name; }

class Intruder : public ::testing::TestWithParam<Rights> {
 protected:
  void SetUp() override {
    if (getuid() != 0) GTEST_SKIP() << "needs root, to be other users";
    char folder[] = "/tmp/gpuloom-intruder-XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    folder_ = folder;
    chmod(folder, 0755);
    Make("results", 0666);
    // As readable as its user makes it, and to no other user.
    Make("secret", 0600);
    Make("readable", 0644);
    Make("writable", 0666);
    const std::string open_folder = folder_ / "open";
    for (const char* made : {"open", "open/moved"}) {
      std::filesystem::create_directory(folder_ / made);
      chmod((folder_ / made).c_str(), 0777);
    }
    Make("open/removable", 0666);
    targets_["secret"] = folder_ / "secret";
    targets_["readable"] = folder_ / "readable";
    targets_["writable"] = folder_ / "writable";
    targets_["open-folder"] = open_folder;
    Listen("datagram", open_folder + "/socket");
    chmod((open_folder + "/socket").c_str(), 0666);
    Listen("abstract", "gpuloom-intruder-" + std::to_string(getpid()));
    std::vector<std::string> sleep = {"/bin/sleep", "600"};
    if (GetParam().user != 0) {
      const std::string user = std::to_string(GetParam().user);
      sleep.insert(sleep.begin(),
                   {"/usr/bin/setpriv", "--reuid", user, "--regid", user, "--clear-groups"});
    }
    bystander_ = Process(sleep);
    targets_["bystander"] = std::to_string(bystander_.pid());
    // A file, as the agent gives it to a scheduler.
    const channel::UniqueFd before(fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3));
    const channel::UniqueFd log(
        open((folder_ / "scheduler.log").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
    dup2(log.get(), STDERR_FILENO);
    std::vector<std::string> wrapper;
    if (GetParam().lacks[0] != '\0') wrapper = {GPULOOM_WITHOUT_CALLS, GetParam().lacks};
    stack_ = std::make_unique<Stack>(
        Stack::Options{.library = GPULOOM_INTRUDER,
                       .user = GetParam().user,
                       .has_charts_rights = GetParam().are_charts,
                       .wrapper = wrapper,
                       .environment = {"GPULOOM_EXECUTOR_INTRUDER=" + folder_.string()}});
    dup2(before.get(), STDERR_FILENO);
  }

  void TearDown() override {
    if (stack_ == nullptr) return;
    bystander_.Signal(SIGKILL);
    EXPECT_TRUE(bystander_.Wait());
    EXPECT_TRUE(stack_->Ended()) << "a process was left";
    std::filesystem::remove_all(folder_);
  }

  void Make(const std::string& name, mode_t mode) {
    std::ofstream(folder_ / name) << "x\n";
    chmod((folder_ / name).c_str(), mode);
    EXPECT_EQ(chown((folder_ / name).c_str(), GetParam().user, GetParam().user), 0);
  }

  // A socket for datagrams from anybody.
  void Listen(const std::string& target, const std::string& name) {
    channel::UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    memcpy(address.sun_path + (name[0] != '/'), name.data(), name.size());
    const auto size =
        static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size() + (name[0] != '/'));
    ASSERT_EQ(bind(socket.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
    targets_[target] = name;
    sockets_.push_back(std::move(socket));
  }

  // What the intruder has said; starts the domain that it takes over.
  std::vector<std::string> Attack() {
    const Allocation victim = stack_->Allocate({.pod = "victim", .domain = "victim"});
    Process tenant = stack_->Tenant(victim, {"hold", "2"});
    EXPECT_TRUE(tenant.ReadLine("ready"));
    const pid_t executor = stack_->ExecutorOf("victim");
    targets_["victim"] = std::to_string(executor);
    targets_["scheduler"] = std::to_string(stack_->scheduler().pid());
    targets_["state"] = stack_->StateFolder();
    targets_["control"] = stack_->StateFolder() + "/" + control::kControlSocketName;
    targets_["door"] = victim.directory + "/" + wire::kSocketName;
    const std::vector<std::string> words = CommandLineOf(executor);
    for (size_t i = 0; i + 1 < words.size(); ++i) {
      if (words[i] == "--folder") targets_["victims-folder"] = words[i + 1];
    }
    {
      std::ofstream file(folder_ / "targets");
      for (const auto& [name, value] : targets_) file << name << " " << value << "\n";
    }
    const Allocation taken = stack_->Allocate({.pod = "intruder", .domain = "intruder"});
    Process accomplice = stack_->Tenant(taken, {"hold", "2"});
    EXPECT_TRUE(accomplice.ReadLine("ready")) << "the intruder's executor serves its tenant";
    EXPECT_EQ(stack_->ExecutorOf("victim"), executor);
    EXPECT_EQ(kill(bystander_.pid(), 0), 0);
    EXPECT_FALSE(bystander_.Wait(Milliseconds(0))) << "the bystander was signalled";
    EXPECT_EQ(stack_->State(victim).sessions, 1u);
    std::vector<std::string> lines;
    std::ifstream file(folder_ / "results");
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  }

  std::filesystem::path folder_;
  std::map<std::string, std::string> targets_;
  std::vector<channel::UniqueFd> sockets_;
  Process bystander_;
  std::unique_ptr<Stack> stack_;
};

bool HasLandlock() {
  constexpr long kCreateRuleset = 444;
  constexpr unsigned kVersion = 1;
  constexpr long kScopes = 6;  // the version from which signals and abstract names are kept in
  return syscall(kCreateRuleset, nullptr, 0, kVersion) >= kScopes;
}

// What everybody may reach whom Landlock does not keep from it.
const std::set<std::string> kOpenToEverybody = {"readable file outside",
                                                "writable file outside",
                                                "new file in an open folder",
                                                "new folder in an open folder",
                                                "removing a file in an open folder",
                                                "renaming a folder in an open folder",
                                                "new file in /tmp",
                                                "new file in /dev/shm",
                                                "list of /tmp",
                                                "list of all processes"};
// What a user may reach besides, of itself.
const std::set<std::string> kOpenToTheSameUser = {"secret file", "list of the state folder",
                                                  "folder of the victim",
                                                  "new file in the folder of the victim"};
// And what it may when no namespace is between.
const std::set<std::string> kOpenToTheSameNamespace = {
    "memory of the scheduler",      "descriptors of the scheduler", "root folder of the scheduler",
    "environment of the scheduler", "mappings of the scheduler",    "memory of the bystander",
    "descriptors of the bystander", "root folder of the bystander", "environment of the bystander",
    "mappings of the bystander"};

// docs/design/taken-over-executor.md lists what is left where a kernel or a user lacks something.
std::set<std::string> LeftOpen(const Rights& rights) {
  std::set<std::string> open;
  if (strstr(rights.lacks, "444") == nullptr) return open;
  open = kOpenToEverybody;
  if (rights.user == 0) return open;
  open.insert(kOpenToTheSameUser.begin(), kOpenToTheSameUser.end());
  if (strstr(rights.lacks, GPULOOM_UNSHARE) == nullptr) return open;
  open.insert(kOpenToTheSameNamespace.begin(), kOpenToTheSameNamespace.end());
  return open;
}

TEST_P(Intruder, ReachesNothingBeyondItsExecutor) {
  if (LeftOpen(GetParam()).empty() && !HasLandlock()) {
    GTEST_SKIP() << "this kernel lacks what the test is about: Landlock, with scopes";
  }
  const std::vector<std::string> lines = Attack();
  ASSERT_FALSE(lines.empty());
  EXPECT_EQ(lines.back(), "done");
  EXPECT_GT(lines.size(), 80u);
  std::set<std::string> reached;
  for (const std::string& line : lines) {
    if (line.rfind("reached ", 0) == 0) reached.insert(line.substr(8));
  }
  EXPECT_EQ(reached, LeftOpen(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(
    Run, Intruder,
    ::testing::Values(Rights{"ByRoot", 0, false, kNothing},
                      Rights{"ByRootWithoutLandlock", 0, false, kLandlock},
                      Rights{"WithTheChartsRights", 0, true, kNamespaces},
                      Rights{"WithTheChartsRightsWithoutLandlock", 0, true, kBoth},
                      Rights{"BySomebody", kSomebody, false, kNothing},
                      Rights{"BySomebodyWithoutNamespaces", kSomebody, false, kNamespaces},
                      Rights{"BySomebodyWithoutLandlock", kSomebody, false, kLandlock},
                      Rights{"BySomebodyWithoutEither", kSomebody, false, kBoth}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace gpuloom::testing
