// SPDX-License-Identifier: Apache-2.0
#include "agent/simulator/trace_rows.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <sstream>

namespace gpuloom::simulator {
namespace {

constexpr char kHeadings[] = "at_us,tenant,kernel_us,count";
constexpr double kMostUs = 3.6e9;  // an hour, as --seconds
constexpr double kMostCount = 100'000;

// Places of tenants by what a row may call them.
using Names = std::map<std::string, std::vector<size_t>>;

Names NamesOf(const Arguments& arguments) {
  Names names;
  for (size_t i = 0; i < arguments.gpu.tenants.size(); ++i) {
    const TenantSpec& it = arguments.gpu.tenants[i];
    names[it.name].push_back(i);
    names[arguments.spaces[it.space] + "/" + it.name].push_back(i);
  }
  return names;
}

// A decimal number without sign or exponent.
bool Number(const std::string& text, double least, double most, double* number) {
  if (text.empty() || text.find_first_not_of("0123456789.") != text.npos) return false;
  char* end = nullptr;
  *number = std::strtod(text.c_str(), &end);
  return *end == '\0' && *number >= least && *number <= most;
}

std::vector<std::string> FieldsOf(const std::string& line) {
  std::vector<std::string> fields;
  for (size_t begin = 0; begin <= line.size();) {
    const size_t end = std::min(line.find(',', begin), line.size());
    fields.push_back(line.substr(begin, end - begin));
    begin = end + 1;
  }
  return fields;
}

// What is wrong with the row; empty: nothing.
std::string AddRow(const std::vector<std::string>& fields, const Names& names,
                   std::vector<TenantSpec>* tenants) {
  if (fields.size() != 4) return std::string("a row is ") + kHeadings;
  double at_us = 0;
  double kernel_us = 0;
  double count = 0;
  if (!Number(fields[0], 0, kMostUs, &at_us)) return "at_us " + fields[0] + ": not a time";
  if (!Number(fields[2], 0.001, kMostUs, &kernel_us)) {
    return "kernel_us " + fields[2] + ": not a length";
  }
  const bool is_whole = fields[3].find('.') == std::string::npos;
  if (!is_whole || !Number(fields[3], 1, kMostCount, &count)) {
    return "count " + fields[3] + ": not a number from 1 to 100000";
  }
  const auto named = names.find(fields[1]);
  if (named == names.end()) return "tenant " + fields[1] + ": there is none of this name";
  if (named->second.size() > 1) {
    return "tenant " + fields[1] + ": several have this name; say NAMESPACE/NAME";
  }
  TenantSpec& tenant = (*tenants)[named->second.front()];
  if (tenant.request_gap_ns != 0 || tenant.on_ns != 0 || tenant.off_ns != 0) {
    return "tenant " + fields[1] + ": it has requests=, on= or off= already";
  }
  tenant.trace.push_back({static_cast<uint64_t>(at_us * 1e3),
                          static_cast<uint64_t>(kernel_us * 1e3), static_cast<uint32_t>(count)});
  return "";
}

}  // namespace

bool AddTrace(const std::string& file, const std::string& text, Arguments* arguments,
              std::string* error) {
  const Names names = NamesOf(*arguments);
  std::istringstream lines(text);
  std::string line;
  for (size_t number = 1; std::getline(lines, line); ++number) {
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty() || line.front() == '#' || (number == 1 && line == kHeadings)) continue;
    const std::string wrong = AddRow(FieldsOf(line), names, &arguments->gpu.tenants);
    if (wrong.empty()) continue;
    *error = file;
    error->append(":").append(std::to_string(number)).append(": ").append(wrong);
    return false;
  }
  for (TenantSpec& tenant : arguments->gpu.tenants) {
    std::stable_sort(tenant.trace.begin(), tenant.trace.end(),
                     [](const Arrival& a, const Arrival& b) { return a.at_ns < b.at_ns; });
  }
  return true;
}

}  // namespace gpuloom::simulator
