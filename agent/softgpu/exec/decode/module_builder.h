// SPDX-License-Identifier: Apache-2.0
// The state of a Module while it is decoded: its names, its constant bank, its shared memory. Used
// by Module::Load, on its thread. `tree`, `program` and `externals` must outlive it. Functions that
// return false have set the error.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/softgpu/exec/decode/symbols.h"
#include "agent/softgpu/exec/machine/module.h"
#include "agent/softgpu/exec/machine/program.h"
#include "agent/softgpu/ptx/syntax.h"

namespace gpuloom::softgpu {

class ModuleBuilder {
 public:
  ModuleBuilder(const ptx::ModuleTree& tree, Program* program, const Externals& externals)
      : tree_(tree), program_(*program), externals_(externals) {}

  // Places variables in memory from `allocate`, and numbers the functions.
  bool Declare(const Module::AllocateGlobals& allocate, std::vector<Global>* globals,
               std::vector<ImageReference>* references);
  // Decodes every function, and adds to `kernels` an entry for each .entry.
  bool DecodeAll(std::vector<Kernel>* kernels);

  // --- for the function decoder ------------------------------------------------------------------

  // Refers to `bits` in all lanes, as a value of 1, 2, 4 or 8 bytes.
  Ref Constant(uint64_t bits, uint32_t size_bytes);
  [[nodiscard]] const Symbol* Find(std::string_view name) const;
  [[nodiscard]] const ptx::FunctionTree* TreeOf(uint64_t function) const {
    return trees_[function];
  }
  [[nodiscard]] Program& program() { return program_; }
  // Allocates shared memory for a variable of the function that is being decoded.
  bool AddShared(uint64_t size_bytes, uint32_t align_bytes, uint64_t* offset);
  bool Fail(uint32_t line, std::string_view message);
  [[nodiscard]] bool failed() const { return !error_.empty(); }
  [[nodiscard]] const std::string& error() const { return error_; }
  [[nodiscard]] bool out_of_memory() const { return out_of_memory_; }

 private:
  bool NumberFunctions();
  bool NumberReferences(std::vector<ImageReference>* references);
  bool LayOutGlobals(const Module::AllocateGlobals& allocate, std::vector<Global>* globals);
  bool FillGlobals(const std::vector<Global>& globals);
  bool WriteInitialValues(const ptx::Variable& variable, uint64_t address);
  bool LayOutShared();
  [[nodiscard]] std::set<uint32_t> Reachable(uint32_t function) const;
  // Whether the effect of a kernel may depend on the order of its blocks.
  [[nodiscard]] bool KeepsOrder(uint32_t kernel) const;
  bool FillKernel(const ptx::FunctionTree& tree, const Function& function, uint32_t shared_bytes,
                  Kernel* kernel);

  const ptx::ModuleTree& tree_;
  Program& program_;
  const Externals& externals_;
  std::map<std::string_view, Symbol> names_;
  std::map<std::pair<uint64_t, uint32_t>, Ref> constants_;
  std::vector<const ptx::Variable*> placed_;  // those that got room, in the order of the globals
  std::vector<const ptx::FunctionTree*>
      trees_;  // by function index: its definition, or a declaration
  std::vector<std::set<std::string_view>> names_used_;  // by function index
  std::vector<uint32_t> shared_start_;                  // by function index
  uint32_t shared_end_ = 0;                             // in the function that is being decoded
  uint32_t device_shared_end_ = 0;  // the memory that device functions use lies below this
  uint64_t const_bytes_ = 0;
  std::string error_;
  bool out_of_memory_ = false;
};

}  // namespace gpuloom::softgpu
