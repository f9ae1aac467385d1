// SPDX-License-Identifier: Apache-2.0
// One loaded PTX module: its kernels, ready to run, and its variables.
//
// Immutable after Load, so any thread may read it and run its kernels. `__device__` and
// `__constant__` variables live in memory that the loader's allocator gave; the module does not
// free it. Must outlive every Run() of its kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "agent/softgpu/ptx/target.h"

namespace gpuloom::softgpu {

struct Program;   // decoded code of a module, exec/machine/program.h
struct Function;  // decoded code of one kernel or device function

// Limits of the device that softgpu presents (compute capability 9.0).
inline constexpr uint32_t kMaxThreadsPerBlock = 1024;
inline constexpr uint32_t kWarpSize = 32;
inline constexpr uint32_t kMaxStaticSharedBytes = 48 * 1024;
inline constexpr uint32_t kMaxSharedBytesPerBlock = 227 * 1024;
inline constexpr uint32_t kMaxParamBytes = 32764;
inline constexpr uint32_t kMaxConstBytes = 64 * 1024;

struct ParamInfo {
  uint32_t offset_bytes = 0;
  uint32_t size_bytes = 0;
};

struct Kernel {
  std::string name;
  std::vector<ParamInfo> params;
  uint32_t param_bytes = 0;          // size of the parameter block: end of the last parameter
  uint32_t static_shared_bytes = 0;  // without the dynamic part
  uint32_t local_bytes = 0;          // per thread, of the kernel itself
  uint32_t const_bytes = 0;          // those of the whole module
  uint32_t num_regs = 0;             // 32-bit registers live at once, an estimate, 16..255
  uint32_t max_threads_per_block = kMaxThreadsPerBlock;  // smaller with .maxntid or .reqntid
  uint32_t required_ntid[3] = {0, 0, 0};                 // .reqntid, or zeros
  uint32_t required_cluster[3] = {0, 0, 0};              // .reqnctapercluster, or zeros
  // Its results may depend on the order of its blocks, so they run one after another.
  bool in_order = false;
  const Function* code = nullptr;
};

struct Global {
  std::string name;
  uint64_t address = 0;
  size_t size_bytes = 0;
  bool constant = false;  // .const: kernels read it only
  bool managed = false;
};

// A texture or surface reference. Its place in the list is its number in kReferenceWindow.
struct ImageReference {
  std::string name;
  bool is_surface = false;
};

// Variables that the text only declares, with the addresses that the module's loader provides.
using Externals = std::map<std::string, uint64_t, std::less<>>;

class Module {
 public:
  // Gives zeroed or unzeroed memory for all variables of the module at once, or 0 when there is
  // none. The memory must be found in the AddressSpace that the module's kernels run with.
  using AllocateGlobals = std::function<uint64_t(size_t size_bytes, size_t align_bytes)>;

  // The beginning of *error for a text whose language is too new for the target.
  static constexpr std::string_view kTooNew = "ptx: its .version is newer than ";

  // Parses, checks and decodes PTX text. On failure returns nullptr with the reason in *error: "ptx
  // line 12: unsupported instruction 'foo.bar'". `out_of_memory`, if not nullptr, is set to whether
  // the allocator refused.
  [[nodiscard]] static std::unique_ptr<Module> Load(std::string_view ptx,
                                                    const AllocateGlobals& allocate,
                                                    std::string* error,
                                                    bool* out_of_memory = nullptr,
                                                    const Externals& externals = {},
                                                    const ptx::Target& target = {});
  ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  [[nodiscard]] const Kernel* FindKernel(std::string_view name) const;
  [[nodiscard]] const Global* FindGlobal(std::string_view name) const;
  [[nodiscard]] const std::vector<Kernel>& kernels() const { return kernels_; }
  [[nodiscard]] const std::vector<Global>& globals() const { return globals_; }
  [[nodiscard]] const std::vector<ImageReference>& references() const { return references_; }
  [[nodiscard]] const Program& program() const { return *program_; }

 private:
  Module();

  std::unique_ptr<Program> program_;
  std::vector<Kernel> kernels_;  // in the order of the text
  std::vector<Global> globals_;
  std::vector<ImageReference> references_;
};

}  // namespace gpuloom::softgpu
