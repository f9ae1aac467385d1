// SPDX-License-Identifier: Apache-2.0
// Modules, libraries and linked images: loaded, used, unloaded, loaded again.
#include <cstring>

#include "tests/sequences/kernels.h"
#include "tests/sequences/world.h"

namespace gpuloom::sequences {
namespace {

constexpr size_t kMostModules = 5;

std::string TextOf(uint32_t stamp, bool with_board) {
  std::string text = kKernels;
  if (with_board) text += kBoardKernels;
  for (size_t at; (at = text.find("STAMP")) != std::string::npos;) {
    text.replace(at, 5, std::to_string(stamp));
  }
  return text;
}

BufferRef Variable(World& world, const ModuleRef& module, const char* name) {
  auto buffer = std::make_shared<Buffer>();
  buffer->place = Place::kVariable;
  buffer->number = world.NextNumber();
  buffer->words.resize(64);
  size_t bytes = 0;
  if (module->library != nullptr) {
    if (std::strcmp(name, "board") == 0) {
      DO(cuLibraryGetManaged, &buffer->device, &bytes, module->library, name);
    } else {
      DO(cuLibraryGetGlobal, &buffer->device, &bytes, module->library, name);
    }
  } else {
    DO(cuModuleGetGlobal_v2, &buffer->device, &bytes, module->module, name);
  }
  if (bytes != 256) Fail(std::string("the variable ") + name + " has another size");
  // They begin as zeros.
  std::vector<uint32_t> found(64, 1);
  DO(cuMemcpyDtoH_v2, found.data(), buffer->device, bytes);
  for (const uint32_t word : found) {
    if (word != 0) Fail(std::string("the variable ") + name + " of a new module is not zero");
  }
  return buffer;
}

bool Load(World& world) {
  if (world.modules.size() >= kMostModules) return false;
  const uint32_t stamp = world.random().Chance(30) ? world.random().Below(4)
                                                   : static_cast<uint32_t>(world.random().Next());
  const ModuleRef module = LoadModule(world, stamp, world.random().Chance(30),
                                      static_cast<int>(world.random().Below(3)));
  world.modules.push_back(module);
  return true;
}

bool UnloadOne(World& world) {
  std::vector<ModuleRef> own;
  for (const ModuleRef& module : world.modules) {
    if (!module->shared) own.push_back(module);
  }
  if (own.empty()) return false;
  const ModuleRef module = world.random().Of(own);
  if (world.random().Chance(50)) world.Verify(module->table);
  world.Unload(module);
  return true;
}

// Loaded and unloaded at once, without being used.
bool Glance(World& world) {
  const std::string text = TextOf(world.random().Below(3), false);
  CUmodule module = nullptr;
  DO(cuModuleLoadData, &module, text.c_str());
  if (world.random().Chance(50)) {
    CUfunction function = nullptr;
    DO(cuModuleGetFunction, &function, module, "mix");
    int threads = 0;
    DO(cuFuncGetAttribute, &threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function);
    int blocks = 0;
    DO(cuOccupancyMaxActiveBlocksPerMultiprocessor, &blocks, function, 64, 0);
    if (threads <= 0 || blocks <= 0) Fail("a kernel that cannot run");
  }
  DO(cuModuleUnload, module);
  return true;
}

// Its variables, by copies and by kernels of its own.
bool UseVariables(World& world) {
  std::vector<ModuleRef> own;
  for (const ModuleRef& module : world.modules) {
    if (!module->shared) own.push_back(module);
  }
  if (own.empty()) return false;
  const ModuleRef module = world.random().Of(own);
  const BufferRef variable =
      module->board != nullptr && world.random().Chance(50) ? module->board : module->table;
  if (world.random().Chance(50)) {
    Fill(world, variable);
  } else {
    world.Verify(variable);
  }
  return true;
}

}  // namespace

ModuleRef LoadModule(World& world, uint32_t stamp, bool with_board, int way) {
  static constexpr const char* kWays[] = {"module", "library", "linked"};
  auto module = std::make_shared<ModuleObject>();
  module->number = world.NextNumber();
  module->stamp = stamp;
  world.journal().Note("%s %u, stamp %u%s", kWays[way], module->number, stamp,
                       with_board ? ", with a managed variable" : "");
  std::string text = TextOf(stamp, with_board);
  switch (way) {
    case 0:
      DO(cuModuleLoadData, &module->module, text.c_str());
      break;
    case 1:
      DO(cuLibraryLoadData, &module->library, text.c_str(), nullptr, nullptr, 0, nullptr, nullptr,
         0);
      break;
    default: {
      CUlinkState link = nullptr;
      DO(cuLinkCreate_v2, 0, nullptr, nullptr, &link);
      DO(cuLinkAddData_v2, link, CU_JIT_INPUT_PTX, text.data(), text.size() + 1, "part", 0, nullptr,
         nullptr);
      void* image = nullptr;
      size_t bytes = 0;
      DO(cuLinkComplete, link, &image, &bytes);
      DO(cuModuleLoadData, &module->module, image);
      DO(cuLinkDestroy, link);
    }
  }
  module->table = Variable(world, module, "table");
  if (with_board) module->board = Variable(world, module, "board");
  return module;
}

std::vector<Step> ModuleSteps() {
  return {{"module.load", 3, Load},
          {"module.unload", 2, UnloadOne},
          {"module.glance", 1, Glance},
          {"module.variables", 3, UseVariables}};
}

}  // namespace gpuloom::sequences
