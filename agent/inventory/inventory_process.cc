// SPDX-License-Identifier: Apache-2.0
#include "agent/inventory/inventory_process.h"

#include <chrono>
#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "agent/cat.h"
#include "agent/node/one_line.h"
#include "agent/node/process.h"
#include "agent/node/program_output.h"

namespace gpuloom {
namespace {

using Json = nlohmann::json;

// More than the most GPUs of a node take.
constexpr size_t kMostBytes = 256 << 10;
constexpr size_t kMostQuotedBytes = 200;
constexpr std::string_view kSubject = "inventory: ";

Json JsonOf(const Gpu& gpu) {
  return {{"uuid", gpu.uuid},
          {"name", gpu.name},
          {"index", gpu.index},
          {"totalBytes", gpu.total_bytes},
          {"numaNode", gpu.numa_node}};
}

Gpu GpuOf(const Json& json) {
  return {json.at("uuid"), json.at("name"), json.at("index"), json.at("totalBytes"),
          json.at("numaNode")};
}

}  // namespace

// A driver's texts may be anything; what is no UTF-8 is replaced.
std::string PrintInventory(const Inventory& inventory) {
  Json gpus = Json::array();
  for (const Gpu& gpu : inventory.gpus) gpus.push_back(JsonOf(gpu));
  const Json json = {{"gpus", gpus},
                     {"faults", inventory.faults},
                     {"trouble", inventory.trouble},
                     {"isUnusable", inventory.is_unusable}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

absl::StatusOr<Inventory> ReadInventory(std::string_view said) {
  while (said.ends_with('\n')) said.remove_suffix(1);
  const size_t end_of_rest = said.rfind('\n');
  if (end_of_rest != said.npos) said.remove_prefix(end_of_rest + 1);
  try {
    const Json json = Json::parse(said);
    Inventory inventory;
    for (const Json& gpu : json.at("gpus")) inventory.gpus.push_back(GpuOf(gpu));
    json.at("faults").get_to(inventory.faults);
    json.at("trouble").get_to(inventory.trouble);
    json.at("isUnusable").get_to(inventory.is_unusable);
    return inventory;
  } catch (const Json::exception&) {
    return absl::InternalError(Cat(kSubject, "looking for GPUs printed no inventory but \"",
                                   OneLine(std::string(said), kMostQuotedBytes), "\""));
  }
}

absl::StatusOr<Inventory> RunForInventory(const std::vector<std::string>& arguments,
                                          std::chrono::seconds patience) {
  const ProgramOutput output = RunForOutput(arguments, patience, kMostBytes);
  if (!output.trouble.empty()) return absl::InternalError(Cat(kSubject, output.trouble));
  if (!output.wait_status) {
    return absl::DeadlineExceededError(Cat(kSubject, "the driver has not said for ",
                                           patience.count(),
                                           " s which GPUs there are; see dmesg, and does "
                                           "nvidia-smi answer on the node?"));
  }
  absl::StatusOr<Inventory> inventory = ReadInventory(output.said);
  if (inventory.ok()) return inventory;
  return absl::InternalError(
      Cat(std::string(inventory.status().message()), " (", ExitText(*output.wait_status), ")"));
}

absl::StatusOr<Inventory> RunForFirstInventory(const std::vector<std::string>& arguments,
                                               const InventorySources& sources,
                                               std::chrono::seconds patience) {
  absl::StatusOr<Inventory> inventory = RunForInventory(arguments, patience);
  if (inventory.ok()) return inventory;
  std::string reason(inventory.status().message());
  // The inventory's own text begins with the same.
  if (reason.starts_with(kSubject)) reason.erase(0, kSubject.size());
  return MakeInventory(absl::UnavailableError(reason), sources);
}

}  // namespace gpuloom
