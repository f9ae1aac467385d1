// SPDX-License-Identifier: Apache-2.0
// Which files this process reaches, by Landlock: reading where programs, libraries, settings and
// the machine's description lie, and of /proc itself only; writing to the GPU's device nodes, to what its
// own threads are called, and to one folder. With it go, where the kernel's Landlock knows them, TCP, abstract Unix sockets, signals to others and
// looking into other processes. Of the calling thread and those it starts from then on.
#pragma once

#include <string>
#include <vector>

namespace gpuloom::executor {

struct ReachableFiles {
  std::vector<std::string> read;     // folders with all below them, or files
  std::vector<std::string> written;  // folders whose files may be read and written, but none made
  std::vector<std::string> devices;  // device nodes or folders of them, to read, write and control
  std::vector<std::string>
      own;  // folders in which everything but devices, links and sockets may be made
};

// What an executor needs anywhere, beside its own folder and the driver's.
ReachableFiles FilesOfEveryExecutor();

// The folders in which the library of this function lies, by its name and behind links.
void AddLibraryFolders(const void* function, std::vector<std::string>* folders);

// The version of Landlock that is enforced from now on; 0 with the reason in *why where the kernel
// has none or does not let us. A path that does not exist is left out.
[[nodiscard]] int RestrictFiles(const ReachableFiles& files, std::string* why);

}  // namespace gpuloom::executor
