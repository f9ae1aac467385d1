// SPDX-License-Identifier: Apache-2.0
#include "agent/events/tenant_watches.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <exception>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "agent/cat.h"
#include "agent/identity/kept_text.h"

namespace gpuloom {
namespace {

using Json = nlohmann::json;

}  // namespace

// Only allocations that have counted something: the others have had no events. So the text changes only when there are
// new events.
std::string TenantWatches::Format(const Known& known) {
  Json json = Json::object();
  for (const auto& [uuid, allocations] : known) {
    for (const auto& [name, counts] : allocations) {
      if (counts == TenantWatch::Counts{}) continue;
      json[uuid][name] = {{"memory_refusals", counts.memory_refusals},
                          {"session_refusals", counts.session_refusals},
                          {"long_kernels", counts.long_kernels},
                          {"pending_partitions", counts.pending_partitions},
                          {"faults", counts.faults}};
    }
  }
  return Json{{"told", std::move(json)}}.dump();
}

// Another release may know other kinds of fault. A kind that only one of the two knows has had no events.
absl::StatusOr<TenantWatches::Known> TenantWatches::Parse(const std::string& text) {
  try {
    Known known;
    const Json told = Json::parse(text).at("told");
    for (const auto& [uuid, allocations] : told.items()) {
      for (const auto& [name, json] : allocations.items()) {
        TenantWatch::Counts& counts = known[uuid][name];
        counts.memory_refusals = json.at("memory_refusals").get<uint64_t>();
        counts.session_refusals = json.at("session_refusals").get<uint64_t>();
        counts.long_kernels = json.at("long_kernels").get<uint64_t>();
        // Releases up to 0.2.0 did not write it.
        counts.pending_partitions = json.value("pending_partitions", uint64_t{0});
        const auto faults = json.at("faults").get<std::vector<uint64_t>>();
        std::copy_n(faults.begin(), std::min(faults.size(), std::size(counts.faults)),
                    std::begin(counts.faults));
      }
    }
    return known;
  } catch (const std::exception& wrong) {
    return absl::DataLossError(Cat("is not what events were told: ", wrong.what()));
  }
}

void TenantWatches::Load() {
  watches_.clear();
  loaded_.clear();
  kept_.clear();
  was_kept_ = false;
  tries_left_ = kMostTries;
  is_unread_ = !Read();
  if (is_unread_) spdlog::warn("events: {} cannot be read now; it is tried again", path_);
}

bool TenantWatches::Read() {
  const absl::StatusOr<std::string> text = KeptText(path_);
  if (absl::IsNotFound(text.status())) return true;
  if (MayBeWhole(text.status()) && tries_left_-- > 0) return false;
  absl::StatusOr<Known> known = text.ok() ? Parse(*text) : text.status();
  if (!known.ok()) {
    spdlog::warn("events: {}{}: what has happened to pods while no agent ran is not told",
                 text.ok() ? path_ + " " : "", std::string(known.status().message()));
    return true;
  }
  loaded_ = *std::move(known);
  was_kept_ = true;
  kept_ = *text;
  return true;
}

std::vector<Event> TenantWatches::Look(const std::string& gpu_uuid, const GpuReport& report) {
  if (is_unread_) is_unread_ = !Read();
  if (is_unread_) return {};
  const auto [watch, is_new] = watches_.try_emplace(gpu_uuid);
  if (is_new && was_kept_) {
    const auto loaded = loaded_.extract(gpu_uuid);
    watch->second.Resume(loaded ? std::move(loaded.mapped())
                                : std::map<std::string, TenantWatch::Counts>());
  }
  return watch->second.Look(report);
}

void TenantWatches::Keep() {
  if (is_unread_) return;
  // What was loaded of GPUs whose schedulers have not reported yet stays as it was.
  Known known = loaded_;
  for (const auto& [uuid, watch] : watches_) known[uuid] = watch.known();
  std::string text = Format(known);
  if (text == kept_) return;
  const absl::Status status = KeepText(path_, text);
  const std::string trouble = status.ok()
                                  ? ""
                                  : Cat("events: what was told cannot be kept for the next start: ",
                                        std::string(status.message()));
  if (!trouble.empty() && trouble != last_trouble_) spdlog::warn("{}", trouble);
  last_trouble_ = trouble;
  if (status.ok()) kept_ = std::move(text);
}

}  // namespace gpuloom
