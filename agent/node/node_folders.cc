// SPDX-License-Identifier: Apache-2.0
#include "agent/node/node_folders.h"

#include <stdlib.h>

namespace gpuloom {
namespace {

std::string FolderOf(const char* variable, const char* usual) {
  const char* const said = getenv(variable);
  return said != nullptr && said[0] != '\0' ? said : usual;
}

}  // namespace

std::string AgentsStateDir() { return FolderOf(kStateDirVariable, "/var/lib/gpuloom"); }

std::string KubeletDir() { return FolderOf(kKubeletDirVariable, "/var/lib/kubelet"); }

}  // namespace gpuloom
