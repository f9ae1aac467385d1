// SPDX-License-Identifier: Apache-2.0
#include "proto/libcuda/compile_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "proto/cuda/image_hash.h"
#include "proto/libcuda/growing.h"

namespace gpuloom {

// The path of the file for these inputs, whether it exists or not.
struct CompileCacheKey {
  char folder[PATH_MAX];
  char name[2 * sizeof(ImageHash) + 1];
};

namespace {

// As documented for CUDA_CACHE_MAXSIZE.
constexpr uint64_t kDefaultMostBytes = uint64_t{1} << 30;
constexpr uint64_t kGreatestMostBytes = uint64_t{4} << 30;

// What a file begins with; `data_bytes` of data follow. Another version of the format would have
// another magic, and find these files not there.
struct FileHeader {
  char magic[8] = {'g', 'p', 'u', 'l', 'o', 'o', 'm', '1'};
  uint64_t data_bytes = 0;
  ImageHash data_hash{};
};

// Owns a descriptor, which may be invalid; then everything fails.
class File {
 public:
  explicit File(int fd) : fd_(fd) {}
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  int fd() const { return fd_; }
  bool Read(void* bytes, size_t size) const {
    for (auto* at = static_cast<char*>(bytes); size > 0;) {
      const ssize_t got = read(fd_, at, size);
      // An error, or the file ends too early.
      if (got <= 0) return false;
      at += got;
      size -= static_cast<size_t>(got);
    }
    return true;
  }
  bool Write(const void* bytes, size_t size) const {
    for (const auto* at = static_cast<const char*>(bytes); size > 0;) {
      const ssize_t put = write(fd_, at, size);
      if (put <= 0) return false;
      at += put;
      size -= static_cast<size_t>(put);
    }
    return true;
  }

 private:
  int fd_;
};

bool IsOff() {
  const char* off = getenv("CUDA_CACHE_DISABLE");
  return off != nullptr && strcmp(off, "1") == 0;
}

// In bytes, as CUDA reads it. 0 keeps nothing.
uint64_t MostBytes() {
  const char* text = getenv("CUDA_CACHE_MAXSIZE");
  if (text == nullptr) return kDefaultMostBytes;
  const uint64_t most = strtoull(text, nullptr, 10);
  return most < kGreatestMostBytes ? most : kGreatestMostBytes;
}

// Makes the folder and those above it.
bool MakeFolder(char* path) {
  for (char* slash = strchr(path + 1, '/'); slash != nullptr; slash = strchr(slash + 1, '/')) {
    *slash = 0;
    mkdir(path, 0700);  // what cannot be made is missed below
    *slash = '/';
  }
  mkdir(path, 0700);
  return access(path, W_OK | X_OK) == 0;
}

bool FindFolder(char (&folder)[PATH_MAX]) {
  const char* path = getenv("CUDA_CACHE_PATH");
  const char* home = getenv("HOME");
  int length = 0;
  if (path != nullptr && *path != 0) {
    length = snprintf(folder, sizeof(folder), "%s/gpuloom", path);
  } else if (home != nullptr && *home != 0) {
    length = snprintf(folder, sizeof(folder), "%s/.nv/ComputeCache/gpuloom", home);
  }
  return length > 0 && static_cast<size_t>(length) < sizeof(folder) && MakeFolder(folder);
}

ImageHash HashOf(const void* bytes, size_t size) {
  return HashImage(static_cast<const uint8_t*>(bytes), size);
}

// A fixed size for each input, so that none can pass for a part of another.
struct InputHashes {
  uint64_t kind;
  uint64_t architecture;
  ImageHash data;
  ImageHash options;
  ImageHash host;
  ImageHash compiler;
};

// Null is unlike an empty text.
ImageHash HashText(const char* text) {
  return text == nullptr ? ImageHash{} : HashOf(text, strlen(text));
}

void WriteName(const ImageHash& hash, char* name) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(&hash);
  for (size_t i = 0; i < sizeof(hash); ++i) snprintf(name + 2 * i, 3, "%02x", bytes[i]);
}

int OpenFolder(const CompileCacheKey& key) {
  return open(key.folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

// As fstatat, whose name in the C library programs with a glibc before 2.33 do not have.
bool GetState(int folder_fd, const char* name, int flags, struct stat* state) {
  return syscall(SYS_newfstatat, folder_fd, name, state, flags) == 0;
}

// A file of the cache, for choosing what to remove.
struct KeptFile {
  // The time of modification, which FindCompiled sets: access times are often not kept (relatime).
  timespec used;
  uint64_t size_bytes;
  char name[NAME_MAX + 1];
};

int CompareUse(const void* a_file, const void* b_file) {
  const timespec& a = static_cast<const KeptFile*>(a_file)->used;
  const timespec& b = static_cast<const KeptFile*>(b_file)->used;
  if (a.tv_sec != b.tv_sec) return a.tv_sec < b.tv_sec ? -1 : 1;
  return a.tv_nsec < b.tv_nsec ? -1 : a.tv_nsec > b.tv_nsec;
}

// Removes what was used longest ago until `most_bytes` are left. Files of other processes that are not complete yet
// count too, so those that a killed process left behind go as well.
void MakeRoom(int folder_fd, uint64_t most_bytes) {
  // A descriptor of its own, because closedir closes it.
  const int fd = openat(folder_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* folder = fd < 0 ? nullptr : fdopendir(fd);
  if (folder == nullptr) {
    if (fd >= 0) close(fd);
    return;
  }
  uint64_t sum_bytes = 0;
  Growing<KeptFile> files;
  while (const dirent* entry = readdir(folder)) {
    struct stat state;
    if (!GetState(folder_fd, entry->d_name, AT_SYMLINK_NOFOLLOW, &state) ||
        !S_ISREG(state.st_mode)) {
      continue;
    }
    KeptFile file = {state.st_mtim, static_cast<uint64_t>(state.st_size), {}};
    snprintf(file.name, sizeof(file.name), "%s", entry->d_name);
    sum_bytes += file.size_bytes;
    if (!files.Push(file)) break;
  }
  closedir(folder);
  if (sum_bytes > most_bytes) qsort(files.begin(), files.count(), sizeof(KeptFile), CompareUse);
  for (const KeptFile& file : files) {
    // A file that cannot be removed is gone already, by another process that makes room, or none
    // here can be. The limit may be exceeded then, until the next file is kept.
    if (sum_bytes <= most_bytes || unlinkat(folder_fd, file.name, 0) != 0) break;
    sum_bytes -= file.size_bytes;
  }
  files.Free();
}

}  // namespace

CUresult MakeCompileCacheKey(const CompileInputs& inputs, CompileCacheKey** key) {
  if (key == nullptr || (inputs.data == nullptr && inputs.data_bytes != 0)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *key = nullptr;
  if (IsOff()) return CUDA_ERROR_NOT_INITIALIZED;
  auto* made = static_cast<CompileCacheKey*>(malloc(sizeof(CompileCacheKey)));
  if (made == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  if (!FindFolder(made->folder)) {
    free(made);
    return CUDA_ERROR_NOT_INITIALIZED;
  }
  const InputHashes hashes = {inputs.kind,
                              inputs.architecture,
                              HashOf(inputs.data, inputs.data_bytes),
                              HashText(inputs.options),
                              HashText(inputs.host),
                              HashText(inputs.compiler)};
  WriteName(HashOf(&hashes, sizeof(hashes)), made->name);
  *key = made;
  return CUDA_SUCCESS;
}

void DestroyCompileCacheKey(CompileCacheKey* key) { free(key); }

CUresult FindCompiled(const CompileCacheKey& key, void** data, uint32_t* data_bytes) {
  if (data == nullptr || data_bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const File folder(OpenFolder(key));
  // O_NONBLOCK: a FIFO of that name would block the program.
  const File file(openat(folder.fd(), key.name, O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  FileHeader header;
  struct stat state;
  if (file.fd() < 0 || !GetState(file.fd(), "", AT_EMPTY_PATH, &state) || !S_ISREG(state.st_mode) ||
      !file.Read(&header, sizeof(header)) ||
      memcmp(header.magic, FileHeader().magic, sizeof(header.magic)) != 0 ||
      header.data_bytes > UINT32_MAX ||
      static_cast<uint64_t>(state.st_size) != sizeof(header) + header.data_bytes) {
    return CUDA_ERROR_NOT_FOUND;
  }
  void* bytes = malloc(header.data_bytes != 0 ? header.data_bytes : 1);
  if (bytes == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto is_whole = [&] {
    if (!file.Read(bytes, header.data_bytes)) return false;
    const ImageHash hash = HashOf(bytes, header.data_bytes);
    return memcmp(&hash, &header.data_hash, sizeof(hash)) == 0;
  };
  if (!is_whole()) {
    free(bytes);
    return CUDA_ERROR_NOT_FOUND;
  }
  utimensat(folder.fd(), key.name, nullptr, 0);  // used now
  *data = bytes;
  *data_bytes = static_cast<uint32_t>(header.data_bytes);
  return CUDA_SUCCESS;
}

CUresult KeepCompiled(const CompileCacheKey& key, const void* data, uint32_t data_bytes) {
  if (data == nullptr && data_bytes != 0) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t file_bytes = sizeof(FileHeader) + uint64_t{data_bytes};
  const uint64_t most_bytes = MostBytes();
  if (file_bytes > most_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
  const File folder(OpenFolder(key));
  if (folder.fd() < 0) return CUDA_ERROR_NOT_INITIALIZED;
  // Before the file is written, so that the limit holds with it.
  MakeRoom(folder.fd(), most_bytes - file_bytes);

  FileHeader header;
  header.data_bytes = data_bytes;
  header.data_hash = HashOf(data, data_bytes);
  // Written beside it and renamed, so that nobody reads a part of it.
  char path[PATH_MAX + 64];
  snprintf(path, sizeof(path), "%s/new-XXXXXX", key.folder);
  const File file(mkostemp(path, O_CLOEXEC));
  if (file.fd() < 0) return CUDA_ERROR_NOT_INITIALIZED;
  if (!file.Write(&header, sizeof(header)) || !file.Write(data, data_bytes) ||
      renameat(AT_FDCWD, path, folder.fd(), key.name) != 0) {
    unlink(path);
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  return CUDA_SUCCESS;
}

}  // namespace gpuloom
