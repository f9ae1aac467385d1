// SPDX-License-Identifier: Apache-2.0
// Where gpuloom's files lie, found from the path of one of its programs, so that a folder with all of them can be
// moved. Pure except that it looks at the file system; safe from any thread.
//
//   build tree, image, pack     bin/ with all programs, lib/ with the libraries
//   cmake --install, packages   bin/gpuloom and bin/gpuloom-agent, libexec/gpuloom/ with the programs that they start,
//                               lib/gpuloom/ with the libraries (deploy/install.cmake)
#pragma once

#include <string>

namespace gpuloom {

struct Layout {
  std::string helpers;  // the folder of gpuloom-scheduler; gpuloom-executor is beside it
  std::string
      libraries;  // the folder of libgpuloom.so, libgpuloom-nvml.so, gpuloom-trace and softgpu/

  std::string scheduler() const { return helpers + "/gpuloom-scheduler"; }
  std::string shim() const { return libraries + "/libgpuloom.so"; }
  std::string nvml() const { return libraries + "/libgpuloom-nvml.so"; }
  std::string trace() const { return libraries + "/gpuloom-trace"; }
  std::string softgpu() const { return libraries + "/softgpu/libcuda.so.1"; }
};

// The layout of the installation of the program <root>/bin/<name>, whose symbolic links are resolved (OwnProgram). The
// files need not exist.
Layout LayoutOf(const std::string& program);

}  // namespace gpuloom
