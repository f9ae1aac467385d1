// SPDX-License-Identifier: Apache-2.0
#include "agent/inventory/inventory_process.h"

#include <chrono>
#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "agent/cat.h"
#include "agent/node/one_line.h"
#include "agent/node/program_output.h"

namespace gpuloom {
namespace {

using Json = nlohmann::json;

// More than the most GPUs of a node take.
constexpr size_t kMostBytes = 256 << 10;
constexpr size_t kMostQuotedBytes = 200;

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
    return absl::InternalError(Cat("inventory: looking for GPUs printed no inventory but \"",
                                   OneLine(std::string(said), kMostQuotedBytes), "\""));
  }
}

absl::StatusOr<Inventory> RunForInventory(const std::vector<std::string>& arguments) {
  const ProgramOutput output =
      RunForOutput(arguments, std::chrono::seconds(kLookTimeoutSeconds), kMostBytes);
  if (!output.trouble.empty()) return absl::InternalError(Cat("inventory: ", output.trouble));
  if (!output.wait_status) {
    return absl::DeadlineExceededError(Cat("inventory: the driver has not said for ",
                                           kLookTimeoutSeconds, " s which GPUs there are"));
  }
  return ReadInventory(output.said);
}

}  // namespace gpuloom
