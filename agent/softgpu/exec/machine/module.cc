// SPDX-License-Identifier: Apache-2.0
// A module's text goes through the parser, whose tree refers to the text, and the ModuleBuilder.
// Neither outlives Load(): what stays is the Program.
#include "agent/softgpu/exec/machine/module.h"

#include <new>
#include <string>

#include "agent/softgpu/exec/decode/module_builder.h"
#include "agent/softgpu/exec/machine/program.h"
#include "agent/softgpu/ptx/parser.h"

namespace gpuloom::softgpu {

Module::Module() : program_(std::make_unique<Program>()) {}
Module::~Module() = default;

std::unique_ptr<Module> Module::Load(std::string_view ptx, const AllocateGlobals& allocate,
                                     std::string* error, bool* out_of_memory,
                                     const Externals& externals, const ptx::Target& target) {
  if (out_of_memory != nullptr) *out_of_memory = false;
  try {
    ptx::ModuleTree tree;
    if (!ptx::Parse(ptx, &tree, error)) return nullptr;
    // A text that is too new is distinguished from one that is wrong: the driver returns another
    // error code for it (kTooNew).
    if (tree.version > target.newest_ptx) {
      *error = std::string(kTooNew) + ptx::Dotted(target.newest_ptx) + ", all that " +
               target.driver + " knows; it is " + ptx::Dotted(tree.version);
      return nullptr;
    }
    // The target says for which devices the text is meant; without one nothing can be checked.
    if (tree.targets.empty()) {
      *error = "ptx: it names no target";
      return nullptr;
    }
    for (const ptx::TargetName& named : tree.targets) {
      if (named.capability != 0 && target.Runs(named.capability, named.kind)) continue;
      *error = "ptx: made for sm_" + std::to_string(named.capability) + ptx::Suffix(named.kind) +
               ", and this device is of sm_" + std::to_string(target.capability);
      return nullptr;
    }
    std::unique_ptr<Module> module(new Module());
    // The order matters: variables have addresses before code that names them is decoded, and
    // kernels are described last, when all that they call is known.
    ModuleBuilder builder(tree, module->program_.get(), externals);
    if (!builder.Declare(allocate, &module->globals_, &module->references_) ||
        !builder.DecodeAll(&module->kernels_) || builder.failed()) {
      *error = builder.error();
      if (out_of_memory != nullptr) *out_of_memory = builder.out_of_memory();
      return nullptr;
    }
    return module;
  } catch (const std::bad_alloc&) {
    // From anywhere above: the tree, the code or the constants of a large module.
    *error = "ptx: the host has no memory for the module";
    if (out_of_memory != nullptr) *out_of_memory = true;
    return nullptr;
  }
}

const Kernel* Module::FindKernel(std::string_view name) const {
  for (const Kernel& kernel : kernels_) {
    if (kernel.name == name) return &kernel;
  }
  return nullptr;
}

const Global* Module::FindGlobal(std::string_view name) const {
  for (const Global& global : globals_) {
    if (global.name == name) return &global;
  }
  return nullptr;
}

}  // namespace gpuloom::softgpu
