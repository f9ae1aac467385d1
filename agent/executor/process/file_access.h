// SPDX-License-Identifier: Apache-2.0
// Restricts which files this process can access, with Landlock: reading where programs, libraries, settings and
// the machine's description lie, and /proc itself only; writing to the GPU's device nodes, to its own threads'
// names, and to one folder. Where the kernel's Landlock supports it, also restricts TCP, abstract Unix sockets,
// signals to others and access to other processes. Applies to the calling thread and those it starts from then on.
#pragma once

#include <string>
#include <vector>

namespace gpuloom::executor {

struct ReachableFiles {
  std::vector<std::string> read;     // folders, with everything below them, or files
  std::vector<std::string> written;  // folders whose files may be read and written, but not created
  std::vector<std::string> devices;  // device nodes or folders of them: read, write, ioctl
  // Folders in which everything but devices, links and sockets may be created.
  std::vector<std::string> own;
};

// What every executor needs, besides its own folder and the driver's.
ReachableFiles FilesOfEveryExecutor();

// Appends the folders of the library that contains this function, by name and with links resolved.
void AddLibraryFolders(const void* function, std::vector<std::string>* folders);

// Returns the Landlock version that is enforced from then on; 0, with the reason in *why, if the kernel has none or
// does not let us use it. Paths that do not exist are skipped.
[[nodiscard]] int RestrictFiles(const ReachableFiles& files, std::string* why);

}  // namespace gpuloom::executor
