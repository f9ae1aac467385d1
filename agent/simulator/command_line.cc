// SPDX-License-Identifier: Apache-2.0
// A wrong argument is named together with its value; --help says what is right.
#include "agent/simulator/command_line.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <system_error>

namespace gpuloom::simulator {

const char kUsage[] =
    "usage: gpuloom-simulate [--tenant KEY=VALUE,...]... [--random TENANTS] [--gpus N]\n"
    "                        [--seconds S] [--seed N] [--ungoverned]\n"
    "\n"
    "Prints the shares and latencies that tenants of a simulated GPU get from gpuloom's own\n"
    "decisions. The same arguments print the same.\n"
    "\n"
    "  --tenant      name=NAME         and, each with a default:\n"
    "                namespace=NAME    those of one name share its weight      (the tenant's "
    "name)\n"
    "                domain=NAME       trust domain                            (one for all)\n"
    "                namespace-weight=N, weight=N   1-1000                     (100)\n"
    "                slots=N           multiplies the weight                   (1)\n"
    "                priority=high|normal|low                                  (normal)\n"
    "                max=PERCENT       timeShareMax of the tenant              (100)\n"
    "                kernel=TIME       a kernel's length, such as 50us or 5ms  (50us)\n"
    "                jitter=PERCENT    it varies by                            (0)\n"
    "                width=PERCENT     of the device                           (100)\n"
    "                streams=N                                                 (1)\n"
    "                requests=TIME     mean time between requests              (always busy)\n"
    "                pieces=N          kernels of a request                    (1)\n"
    "                on=TIME, off=TIME bursts                                  (always on)\n"
    "  --random      so many tenants of all kinds instead\n"
    "  --gpus        GPUs; --tenant's tenants are on each of them\n"
    "  --ungoverned  everything goes to the device as it comes\n";

namespace {

// Decimal digits only.
bool Number(const std::string& text, uint64_t least, uint64_t most, uint64_t* number) {
  const char* const end = text.data() + text.size();
  const auto [stop, status] = std::from_chars(text.data(), end, *number);
  return status == std::errc() && stop == end && *number >= least && *number <= most;
}

// A decimal number as strtod reads it, to its last character.
bool Decimal(const std::string& text, double least, double most, double* number) {
  char* end = nullptr;
  *number = std::strtod(text.c_str(), &end);
  return end != text.c_str() && *end == '\0' && *number >= least && *number <= most;
}

// From a microsecond to a thousand seconds; the unit must stand there.
bool Time(const std::string& text, uint64_t* time_ns) {
  const size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::string unit = text.substr(digits);
  const double scale = unit == "us" ? 1e3 : unit == "ms" ? 1e6 : unit == "s" ? 1e9 : 0;
  double number = 0;
  if (scale == 0 || !Decimal(text.substr(0, digits), 0, 1e6, &number)) return false;
  *time_ns = static_cast<uint64_t>(number * scale);
  return *time_ns >= 1'000 && *time_ns <= 1'000'000'000'000;
}

// The index of a name, which is appended if it is new.
uint32_t IndexOf(const std::string& name, std::vector<std::string>* names) {
  const auto it = std::find(names->begin(), names->end(), name);
  const auto place = static_cast<uint32_t>(it - names->begin());
  if (it == names->end()) names->push_back(name);
  return place;
}

bool SetPriority(const std::string& value, arbiter::Priority* priority) {
  constexpr const char* kNames[] = {"high", "normal", "low"};
  for (const arbiter::Priority each : arbiter::kAllPriorities) {
    if (value != kNames[arbiter::Index(each)]) continue;
    *priority = each;
    return true;
  }
  return false;
}

// A tenant as it was named. Namespaces and domains get their numbers when all of its keys are
// known.
struct Tenant {
  TenantSpec spec;
  std::string space;
  std::string domain = "domain";
  uint64_t space_weight = 0;
};

// Sets one key; false when there is no such key, or the value does not suit it.
bool SetKey(const std::string& key, const std::string& value, Tenant* tenant) {
  TenantSpec& spec = tenant->spec;
  uint64_t number = 0;
  // `times`: what one unit of the command line is in units of the spec, such as permille.
  const auto set = [&](uint64_t least, uint64_t most, uint32_t* to, uint32_t times = 1) {
    const bool good = Number(value, least, most, &number);
    if (good) *to = static_cast<uint32_t>(number) * times;
    return good;
  };
  if (key == "name") return !(spec.name = value).empty();
  if (key == "namespace") return !(tenant->space = value).empty();
  if (key == "domain") return !(tenant->domain = value).empty();
  if (key == "namespace-weight") return Number(value, 1, 1000, &tenant->space_weight);
  if (key == "weight") return set(1, 1000, &spec.policy.weight);
  if (key == "slots") return set(1, 1000, &spec.policy.slots);
  if (key == "priority") return SetPriority(value, &spec.policy.priority);
  if (key == "max") return set(1, 100, &spec.policy.ceiling_permille, 10);
  if (key == "kernel") return Time(value, &spec.kernel_ns);
  if (key == "jitter") return set(0, 100, &spec.jitter_permille, 10);
  if (key == "width") return set(1, 100, &spec.width_permille, 10);
  if (key == "streams") return set(1, 128, &spec.streams);
  if (key == "requests") return Time(value, &spec.request_gap_ns);
  if (key == "pieces") return set(1, 100'000, &spec.request_kernels);
  if (key == "on") return Time(value, &spec.on_ns);
  if (key == "off") return Time(value, &spec.off_ns);
  return false;
}

}  // namespace

bool AddTenant(const std::string& text, Arguments* arguments, std::string* error) {
  Tenant tenant;
  // Up to and including the end: an empty word, as behind a last comma, is refused.
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    const size_t equals = word.find('=');
    if (equals == std::string::npos ||
        !SetKey(word.substr(0, equals), word.substr(equals + 1), &tenant)) {
      *error = word + ": no such key, or not a value of it; see --help";
      return false;
    }
    begin = end + 1;
  }
  GpuSpec& gpu = arguments->gpu;
  if (tenant.spec.name.empty()) {
    tenant.spec.name = "tenant-" + std::to_string(gpu.tenants.size() + 1);
  }
  // Without a namespace it has one of its own.
  const std::string space = tenant.space.empty() ? tenant.spec.name : tenant.space;
  tenant.spec.space = IndexOf(space, &arguments->spaces);
  tenant.spec.domain = IndexOf(tenant.domain, &arguments->domains);
  gpu.spaces.resize(arguments->spaces.size());
  // Tenants of one namespace may each name its weight: the last one counts.
  if (tenant.space_weight != 0) {
    gpu.spaces[tenant.spec.space].weight = static_cast<uint32_t>(tenant.space_weight);
  }
  gpu.tenants.push_back(tenant.spec);
  return true;
}

bool Parse(const std::vector<std::string>& words, Arguments* arguments, std::string* error) {
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--help") {
      arguments->help = true;
      return true;
    }
    if (word == "--ungoverned") {
      arguments->gpu.governed = false;
      continue;
    }
    // A missing value counts as an empty one, which no argument accepts.
    const std::string value = i + 1 < words.size() ? words[++i] : "";
    uint64_t number = 0;
    double seconds = 0;
    bool good = true;
    if (word == "--tenant") {
      if (!AddTenant(value, arguments, error)) {
        error->insert(0, "--tenant: ");
        return false;
      }
    } else if (word == "--random") {
      good = Number(value, 1, 1'000'000, &number);
      arguments->random_tenants = static_cast<uint32_t>(number);
    } else if (word == "--gpus") {
      good = Number(value, 1, 100'000, &number);
      arguments->gpus = static_cast<uint32_t>(number);
    } else if (word == "--seed") {
      good = Number(value, 0, UINT64_MAX, &arguments->seed);
    } else if (word == "--seconds") {
      good = Decimal(value, 0.001, 3600, &seconds);
      arguments->span_ns = static_cast<uint64_t>(seconds * 1e9);
    } else {
      *error = word;
      *error += ": no such argument; see --help";
      return false;
    }
    if (!good) {
      *error = word;
      error->append(" ").append(value).append(": not a value of it; see --help");
      return false;
    }
  }
  // Exactly one of the two must be given.
  if (arguments->gpu.tenants.empty() == (arguments->random_tenants == 0)) {
    *error = "either --tenant, once or several times, or --random; see --help";
    return false;
  }
  return true;
}

}  // namespace gpuloom::simulator
