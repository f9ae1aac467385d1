// SPDX-License-Identifier: Apache-2.0
#include "agent/identity/allocation_book.h"

#include <dirent.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "agent/identity/allocation_record.h"
#include "agent/identity/state_file.h"
#include "agent/testing/full_disk.h"
#include "agent/testing/read_only.h"

namespace {
bool g_folders_fail = false;
int g_entries_until_failure = -1;  // negative: none comes
std::string g_unlisted;            // a file's name
bool g_files_fail = false;
}  // namespace

// In place of libc's: a disk that fails only behind the rename, where the folder is written.
extern "C" int fsync(int fd) {
  struct stat info = {};
  if (g_folders_fail && fstat(fd, &info) == 0 && S_ISDIR(info.st_mode)) {
    errno = EIO;
    return -1;
  }
  return static_cast<int>(syscall(SYS_fsync, fd));
}

// In place of libc's: a disk that fails for a moment.
extern "C" ssize_t read(int fd, void* to, size_t bytes) {
  struct stat info = {};
  if (g_files_fail && fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) {
    errno = EIO;
    return -1;
  }
  return syscall(SYS_read, fd, to, bytes);
}

// In place of libc's: a listing that ends early, or leaves out a file that is there, as that of a
// folder in which another process renames may.
extern "C" dirent* readdir(DIR* folder) {
  static const auto real = reinterpret_cast<dirent* (*)(DIR*)>(dlsym(RTLD_NEXT, "readdir"));
  if (g_entries_until_failure >= 0 && g_entries_until_failure-- == 0) {
    errno = EIO;
    return nullptr;
  }
  for (;;) {
    dirent* const entry = real(folder);
    if (entry == nullptr || g_unlisted != entry->d_name) return entry;
  }
}

namespace gpuloom {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const Clock::Time kNow{std::chrono::milliseconds(1'700'000'000'123)};

class Book : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "bookXXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    state_ = name;
    ASSERT_TRUE(book_.emplace(state_).Load(&complaints_).ok());
  }
  void TearDown() override { fs::remove_all(state_); }
  AllocationBook& Reopen() {
    complaints_.clear();
    book_.emplace(state_);
    EXPECT_TRUE(book_->Load(&complaints_).ok());
    return *book_;
  }
  std::string state_;
  std::optional<AllocationBook> book_;
  std::vector<std::string> complaints_;
};

Binding SomeBinding() {
  return {{"team-a", "p\"0: {", "main"},
          "namespace/team-a",
          12345678901,
          {300, 20, 1, 600, 50},
          30'000,
          {50, 25, 40, 20},
          {10'000, 60'000},
          control::TraceTerms::kOwn,
          2000,
          kNow};
}

TEST_F(Book, SurvivesARestartWhole) {
  const absl::StatusOr<Allocation> added =
      book_->Add("GPU-1", {"gpu-1::2", "gpu-1::0"}, {"shim-1", "nvml-1", "trace-1"}, kNow);
  ASSERT_TRUE(added.ok());
  ASSERT_TRUE(book_->Bind(added->name, SomeBinding()).ok());
  const std::optional<Allocation> found = Reopen().Find(added->name);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->gpu_uuid, "GPU-1");
  EXPECT_EQ(found->library_files.cuda, "shim-1");
  EXPECT_EQ(found->library_files.nvml, "nvml-1");
  EXPECT_EQ(found->library_files.trace, "trace-1");
  EXPECT_EQ(found->binding, SomeBinding());
  EXPECT_EQ(found->created_at, kNow);
  EXPECT_THAT(found->device_ids, ::testing::ElementsAre("gpu-1::0", "gpu-1::2"));
  ASSERT_TRUE(found->binding.has_value());
  EXPECT_EQ(found->binding->owner, SomeBinding().owner);
  EXPECT_EQ(found->binding->quota_bytes, 12345678901u);
  EXPECT_EQ(found->binding->trust_domain, "namespace/team-a");
  EXPECT_THAT(book_->FindByDevices({"gpu-1::2", "gpu-1::0"}), SizeIs(1));
  EXPECT_THAT(book_->FindByDevices({"gpu-1::2"}), IsEmpty());
}

TEST_F(Book, WhichSlotsAShapesDeviceIsSurvivesARestart) {
  const auto shaped =
      book_->Add("GPU-1", {"gpu-1::x4-0"}, {"shim-1", "nvml-1"}, kNow, 5, {6, 7, 8, 9});
  const auto single = book_->Add("GPU-1", {"gpu-1::0"}, {"shim-1", "nvml-1"}, kNow);
  ASSERT_TRUE(shaped.ok() && single.ok());
  AllocationBook& reopened = Reopen();
  EXPECT_THAT(reopened.Find(shaped->name)->slots, ::testing::ElementsAre(6, 7, 8, 9));
  EXPECT_THAT(reopened.Find(single->name)->slots, IsEmpty());
}

TEST_F(Book, NamesAreRandomAndDirectoriesFresh) {
  const auto a = book_->Add("GPU-1", {"x"}, {"s", "n"}, kNow);
  const auto b = book_->Add("GPU-1", {"x"}, {"s", "n"}, kNow);
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_NE(a->name, b->name);
  EXPECT_EQ(a->name.size(), 32u);
  EXPECT_TRUE(fs::is_empty(book_->DirectoryOf(b->name)));
  EXPECT_THAT(book_->FindByDevices({"x"}), SizeIs(2));
}

TEST_F(Book, OnlyTheTenantsDirectoryIsOpenToOthers) {
  const auto a = book_->Add("GPU-1", {"x"}, {"s", "n"}, kNow);
  struct stat info = {};
  ASSERT_EQ(stat(book_->DirectoryOf(a->name).c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0755u);
  ASSERT_EQ(stat((state_ + "/allocations").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0700u);
  ASSERT_EQ(stat((state_ + "/records").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0700u);
}

TEST_F(Book, RemoveTakesDirectoryAndRecord) {
  const auto a = book_->Add("GPU-1", {"x"}, {"s", "n"}, kNow);
  std::ofstream(book_->DirectoryOf(a->name) + "/gpuloom.sock") << "x";
  ASSERT_TRUE(book_->Remove(a->name).ok());
  EXPECT_FALSE(fs::exists(book_->DirectoryOf(a->name)));
  EXPECT_THAT(Reopen().All(), IsEmpty());
  EXPECT_TRUE(book_->Remove(a->name).ok());
}

TEST_F(Book, ADiskThatFailsBehindTheRenameLeavesTheOldState) {
  const auto a = book_->Add("GPU-1", {"x"}, {"s", "n"}, kNow);
  ASSERT_TRUE(a.ok());
  Binding other = SomeBinding();
  other.quota_bytes = 1;
  ASSERT_TRUE(book_->Bind(a->name, SomeBinding()).ok());
  g_folders_fail = true;
  EXPECT_FALSE(book_->Add("GPU-1", {"y"}, {"s", "n"}, kNow).ok());
  EXPECT_FALSE(book_->Bind(a->name, other).ok());
  g_folders_fail = false;
  EXPECT_EQ(book_->Find(a->name)->binding, SomeBinding());
  EXPECT_THAT(book_->All(), SizeIs(1));
  EXPECT_EQ(Reopen().Find(a->name)->binding, SomeBinding());
  EXPECT_EQ(std::distance(fs::directory_iterator(state_ + "/records"), {}), 1);
}

TEST_F(Book, AListingThatFailsOrIsNotWholeEndsNoAllocation) {
  const auto a = book_->Add("GPU-1", {"x"}, {"s", "n"}, kNow);
  ASSERT_TRUE(a.ok());
  g_unlisted = a->name + ".yaml";
  EXPECT_THAT(book_->All(), SizeIs(1));
  EXPECT_TRUE(Reopen().Find(a->name).has_value()) << "asked by its name";
  EXPECT_TRUE(fs::exists(book_->DirectoryOf(a->name))) << "no orphan";
  g_unlisted.clear();
  // Behind ".", ".." and the first, or at once.
  for (const int entries : {3, 0}) {
    g_entries_until_failure = entries;
    EXPECT_THAT(book_->All(), SizeIs(1));
    g_entries_until_failure = entries;
    EXPECT_THAT(book_->Load(&complaints_).message(), HasSubstr(state_ + "/records: "));
  }
  // Of the folder that is read behind the records.
  g_entries_until_failure = 6;
  EXPECT_THAT(book_->Load(&complaints_).message(), HasSubstr(state_ + "/allocations: "));
  g_entries_until_failure = -1;
  // Whatever another agent has removed is over.
  ASSERT_TRUE(fs::remove(state_ + "/records/" + a->name + ".yaml"));
  EXPECT_THAT(book_->All(), IsEmpty());
}

TEST_F(Book, AFullDiskRefusesAndLeavesTheOldState) {
  const auto a = book_->Add("GPU-1", {"x"}, {"s", "n"}, kNow);
  ASSERT_TRUE(a.ok());
  {
    const FullDisk full;
    const auto b = book_->Add("GPU-1", {"y"}, {"s", "n"}, kNow);
    EXPECT_EQ(b.status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(b.status().message(), HasSubstr("free space"));
    EXPECT_FALSE(book_->Bind(a->name, SomeBinding()).ok());
  }
  EXPECT_FALSE(book_->Find(a->name)->binding.has_value());
  EXPECT_THAT(Reopen().All(), SizeIs(1));
  EXPECT_THAT(complaints_, IsEmpty());
  EXPECT_EQ(std::distance(fs::directory_iterator(state_ + "/allocations"), {}), 1);
  EXPECT_EQ(std::distance(fs::directory_iterator(state_ + "/records"), {}), 1);
}

// As ext4 becomes when its disk fails. Also after a restart: what is remembered can be read.
TEST_F(Book, AReadOnlyDiskRefusesAndLeavesTheOldState) {
  const auto a = book_->Add("GPU-1", {"x"}, {"s", "n"}, kNow);
  ASSERT_TRUE(a.ok());
  const auto refuses = [&] {
    if (!MakeReadOnly(state_)) _exit(77);
    for (int restart = 0; restart < 2; ++restart) {
      const auto b = book_->Add("GPU-1", {"y"}, {"s", "n"}, kNow);
      EXPECT_FALSE(b.ok());
      EXPECT_THAT(b.status().message(), HasSubstr("Read-only file system"));
      EXPECT_FALSE(book_->Bind(a->name, SomeBinding()).ok());
      EXPECT_FALSE(book_->Find(a->name)->binding.has_value());
      EXPECT_FALSE(book_->Remove(a->name).ok());
      EXPECT_THAT(Reopen().All(), SizeIs(1));
      EXPECT_THAT(complaints_, IsEmpty());
    }
    _exit(HasFailure() ? 1 : 0);
  };
  int status = 0;
  const pid_t child = fork();
  if (child == 0) refuses();
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
    GTEST_SKIP() << "this machine lets no process have mounts of its own";
  }
  EXPECT_EQ(status, 0) << "see above";
  EXPECT_THAT(Reopen().All(), SizeIs(1));
}

// More than any node has: slots are some hundreds a GPU, and what has ended is kept for minutes.
TEST_F(Book, VeryManySurviveARestartEachWithItsOwn) {
  constexpr int kCount = 500;
  std::vector<std::string> names;
  for (int i = 0; i < kCount; ++i) {
    const auto added = book_->Add("GPU-1", {"gpu-1::" + std::to_string(i)}, {"s", "n"}, kNow);
    ASSERT_TRUE(added.ok());
    names.push_back(added->name);
    if (i % 200 == 0) {
      ASSERT_TRUE(book_->Bind(added->name, SomeBinding()).ok());
    }
  }
  EXPECT_THAT(Reopen().All(), SizeIs(kCount));
  EXPECT_THAT(complaints_, IsEmpty());
  // Each look goes through all of them: some milliseconds, once a container.
  for (int i = 0; i < kCount; i += 100) {
    const auto found = book_->FindByDevices({"gpu-1::" + std::to_string(i)});
    ASSERT_THAT(found, SizeIs(1)) << i;
    EXPECT_EQ(found.front().name, names[static_cast<size_t>(i)]);
    EXPECT_EQ(found.front().binding.has_value(), i % 200 == 0);
  }
}

TEST_F(Book, ABrokenRecordIsSetAsideAndItsDirectoryKept) {
  const auto a = book_->Add("GPU-1", {"x"}, {"s", "n"}, kNow);
  const auto b = book_->Add("GPU-1", {"y"}, {"s", "n"}, kNow);
  std::ofstream(state_ + "/records/" + a->name + ".yaml") << "format: 1\nname: [";
  for (int restart = 0; restart < 2; ++restart) {
    EXPECT_THAT(Reopen().All(), SizeIs(1));
    EXPECT_THAT(complaints_, SizeIs(restart == 0 ? 1 : 0));
    EXPECT_TRUE(fs::exists(book_->DirectoryOf(a->name)));
    EXPECT_FALSE(book_->MayHave(a->name));
  }
  EXPECT_TRUE(book_->Find(b->name).has_value());
}

TEST_F(Book, ARecordThatCannotBeReadForAMomentIsKept) {
  const auto a = book_->Add("GPU-1", {"x"}, {"s", "n"}, kNow);
  const std::string record = state_ + "/records/" + a->name + ".yaml";
  g_files_fail = true;
  EXPECT_THAT(Reopen().All(), IsEmpty());
  EXPECT_THAT(complaints_, ElementsAre(AllOf(HasSubstr(record + ": read: "), HasSubstr("kept"))));
  EXPECT_TRUE(book_->MayHave(a->name));
  EXPECT_THAT(book_->Unread(), ElementsAre(a->name));
  g_files_fail = false;
  EXPECT_THAT(book_->All(), SizeIs(1));
  EXPECT_THAT(book_->Unread(), IsEmpty());
  // One that cannot even be looked at.
  fs::rename(record, record + ".there");
  fs::create_symlink(record, record);
  EXPECT_THAT(Reopen().All(), IsEmpty());
  EXPECT_THAT(complaints_, SizeIs(1));
  EXPECT_TRUE(book_->MayHave(a->name));
  EXPECT_TRUE(fs::exists(book_->DirectoryOf(a->name)));
  fs::remove(record);
  EXPECT_FALSE(book_->MayHave(a->name));
  EXPECT_THAT(book_->Unread(), IsEmpty());
}

TEST_F(Book, TwoAgentsKnowTheSame) {
  const auto a = book_->Add("GPU-1", {"x"}, {"s", "n"}, kNow);
  AllocationBook next(state_);
  ASSERT_TRUE(next.Load(&complaints_).ok());
  // Whichever of them was asked.
  const auto b = book_->Add("GPU-1", {"y"}, {"s", "n"}, kNow);
  const auto c = next.Add("GPU-1", {"z"}, {"s", "n"}, kNow);
  EXPECT_THAT(next.FindByDevices({"y"}), SizeIs(1));
  EXPECT_THAT(book_->FindByDevices({"z"}), SizeIs(1));
  ASSERT_TRUE(next.Bind(b->name, SomeBinding()).ok());
  EXPECT_TRUE(book_->Find(b->name)->binding.has_value());
  ASSERT_TRUE(book_->Bind(c->name, SomeBinding()).ok());
  EXPECT_TRUE(next.Find(c->name)->binding.has_value());
  ASSERT_TRUE(next.Remove(a->name).ok());
  EXPECT_FALSE(book_->Find(a->name).has_value());
  EXPECT_EQ(book_->Bind(a->name, SomeBinding()).code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(book_->All(), SizeIs(2));
  EXPECT_THAT(complaints_, IsEmpty());
}

TEST_F(Book, ADirectoryWithoutRecordIsNobodys) {
  fs::create_directory(state_ + "/allocations/0123456789abcdef0123456789abcdef");
  Reopen();
  EXPECT_TRUE(fs::is_empty(state_ + "/allocations"));
}

TEST(Record, ReadsWhatAnAgentWithoutNvmlWrote) {
  const auto record = ParseRecord(
      "format: 1\nname: \"n\"\ngpu: \"GPU-1\"\nshim: \"s\"\ncreatedAtMs: 1000\ndevices:\n  - "
      "\"x\"\n");
  ASSERT_TRUE(record.ok()) << record.status();
  EXPECT_EQ(record->library_files.cuda, "s");
  EXPECT_EQ(record->library_files.nvml, "");
  EXPECT_EQ(record->library_files.trace, "");
}

TEST(Record, RefusesWhatItCannotRead) {
  for (const char* text :
       {"", "[]", "format: 2\n", "format: 1\n", "format: one\n", "{", "format: 1\nname: \"\"\n"}) {
    EXPECT_FALSE(ParseRecord(text).ok()) << text;
  }
}

TEST(StateFile, MessagesNameThePath) {
  EXPECT_THAT(ReadStateFile("/nonexistent/file").status().message(),
              HasSubstr("/nonexistent/file"));
  EXPECT_THAT(WriteStateFile("/nonexistent/file", "x").message(), HasSubstr("/nonexistent/file"));
  EXPECT_THAT(MakeStateDirectory("/nonexistent/a", 0700).message(), HasSubstr("/nonexistent/a"));
}

}  // namespace
}  // namespace gpuloom
