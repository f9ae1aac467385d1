// SPDX-License-Identifier: Apache-2.0
// Parameters of these calls lie where those of any call do: in .param variables of the caller's
// frame. There is no callee's frame.
//
// What a call prints and which addresses it touches are a tenant's choice: texts are read through
// PointerFor() byte by byte, and their lengths are bounded.
#include "agent/softgpu/exec/machine/system_call.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>

#include "agent/softgpu/exec/machine/block.h"
#include "agent/softgpu/exec/machine/conditional.h"
#include "agent/softgpu/exec/machine/lanes.h"

namespace gpuloom::softgpu {
namespace {

// Longer texts are cut, so that one call cannot take the host's memory.
constexpr size_t kMaxTextBytes = 4096;
constexpr size_t kMaxStringBytes = 1024;

// A call's parameter of one lane. FindSystemCall() has compared its size.
template <class T>
T Argument(Warp& warp, const Slot& slot, uint32_t lane) {
  T value{};
  std::memcpy(&value, warp.LocalOf(lane, warp.frame->local_base + slot.offset_bytes), sizeof(T));
  return value;
}

// The zero-terminated text at a generic address; what cannot be read ends it.
std::string TextAt(Warp& warp, uint32_t lane, uint64_t address) {
  std::string text;
  while (text.size() < kMaxStringBytes) {
    const std::byte* at = warp.PointerFor(lane, ptx::Space::kGeneric, address++, 1, false);
    if (at == nullptr || *at == std::byte{0}) break;
    text.push_back(static_cast<char>(*at));
  }
  return text;
}

// __assertfail(message, file, line, function, character size).
// The message goes to standard error as well as into the fault, as a GPU's driver prints it for a
// program that looks at error codes only. Of several lanes that fail the lowest one's is told.
Step AssertFail(Warp& warp, const Instr& in) {
  const CallSite& site = warp.frame->function->calls[in.target];
  const auto lane = static_cast<uint32_t>(std::countr_zero(warp.exec));
  const auto text = [&](size_t i) {
    return TextAt(warp, lane, Argument<uint64_t>(warp, site.args[i], lane));
  };
  std::string what = text(1);
  what.append(":").append(std::to_string(Argument<uint32_t>(warp, site.args[2], lane)));
  what.append(": ").append(text(3)).append(": Assertion `").append(text(0)).append("` failed");
  std::fprintf(stderr, "%s.\n", what.c_str());
  return warp.Fault(Outcome::kAssert, 0, what);
}

// The arguments of printf as the compiler lays them out: each aligned to its size, in one block.
class Arguments {
 public:
  Arguments(Warp& warp, uint32_t lane, uint64_t address)
      : warp_(warp), lane_(lane), address_(address) {}

  // An argument that cannot be read counts as zeros and is remembered: Print() gives up at the end
  // of the conversion.
  template <class T>
  T Take() {
    address_ = (address_ + sizeof(T) - 1) / sizeof(T) * sizeof(T);
    const std::byte* at = warp_.PointerFor(lane_, ptx::Space::kGeneric, address_, sizeof(T), false);
    T value{};
    if (at != nullptr) std::memcpy(&value, at, sizeof(T));
    missing_ |= at == nullptr;
    address_ += sizeof(T);
    ++taken_;
    return value;
  }
  [[nodiscard]] int32_t taken() const { return taken_; }
  [[nodiscard]] bool missing() const { return missing_; }
  [[nodiscard]] std::string TakeText() { return TextAt(warp_, lane_, Take<uint64_t>()); }

 private:
  Warp& warp_;
  uint32_t lane_;
  uint64_t address_;
  int32_t taken_ = 0;
  bool missing_ = false;
};

// `spec` is one conversion without its length ("%-8.3"), `kind` its letter. The format is made of
// what was checked character by character, so that it fits its one argument.
template <class... Ts>
void AppendFormatted(std::string* text, std::string spec, std::string_view tail, Ts... values) {
  spec.append(tail);
  char buffer[kMaxStringBytes + 64];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-security"
  const int length = std::snprintf(buffer, sizeof(buffer), spec.c_str(), values...);
#pragma GCC diagnostic pop
  if (length <= 0) return;
  text->append(buffer, std::min(static_cast<size_t>(length), sizeof(buffer) - 1));
}

// What %h and %hh print of a number, which came as 32 bits.
template <class Short, class Char, class T>
T Shortened(T value, uint32_t halves) {
  return halves == 0 ? value : halves == 1 ? static_cast<Short>(value) : static_cast<Char>(value);
}

// Reads one conversion behind its '%'; false for one that printf does not know.
bool Convert(std::string_view format, size_t* at, Arguments* arguments, std::string* text) {
  const auto next = [&] { return *at < format.size() ? format[*at] : '\0'; };
  std::string spec = "%";
  // Flags in any number: the C library takes repeated ones.
  while (std::string_view("-+ #0").find(next()) != std::string_view::npos && next() != '\0') {
    spec.push_back(format[(*at)++]);
  }
  // A width or a precision: digits, or `*` for an argument. Three digits are enough for what fits a
  // text; further ones are dropped.
  const auto take_number = [&] {
    size_t digits = 0;
    if (next() == '*') {
      ++*at;
      // Bounded: a wide field would only be cut again.
      const int32_t number = arguments->Take<int32_t>();
      // A negative width asks for the left side, a negative precision for the usual one.
      if (spec.back() == '.' && number < 0) {
        spec.pop_back();
      } else {
        spec.append(std::to_string(std::clamp(number, -999, 999)));
      }
      return;
    }
    while (next() >= '0' && next() <= '9') {
      if (++digits <= 3) spec.push_back(next());
      ++*at;
    }
  };
  take_number();
  if (next() == '.') {
    spec.push_back(format[(*at)++]);
    take_number();
  }
  uint32_t longs = 0;
  uint32_t halves = 0;
  // A GPU's integers come as 32 or 64 bits; of those the length says how much is printed.
  while (std::string_view("hlqjzt").find(next()) != std::string_view::npos && next() != '\0') {
    // size_t and its like have 64 bits on a GPU too.
    ++(next() == 'h' ? halves : longs);
    ++*at;
  }
  const char kind = next();
  // The format ends inside a conversion.
  if (kind == '\0') return false;
  ++*at;
  // No `%n`: it would write to an address of the tenant's choice in this process.
  const std::string letter(1, kind);
  switch (kind) {
    case 'd':
    case 'i':
      if (longs != 0)
        AppendFormatted(text, spec, "lld", arguments->Take<long long>());
      else
        AppendFormatted(text, spec, "d",
                        Shortened<int16_t, int8_t>(arguments->Take<int32_t>(), halves));
      return true;
    case 'u':
    case 'x':
    case 'X':
    case 'o':
      if (longs != 0)
        AppendFormatted(text, spec, "ll" + letter, arguments->Take<unsigned long long>());
      else
        AppendFormatted(text, spec, letter,
                        Shortened<uint16_t, uint8_t>(arguments->Take<uint32_t>(), halves));
      return true;
    case 'f':
    case 'F':
    case 'e':
    case 'E':
    case 'g':
    case 'G':
    case 'a':
    case 'A':
      AppendFormatted(text, spec, letter, arguments->Take<double>());
      return true;
    case 'c':
      AppendFormatted(text, spec, "c", arguments->Take<int32_t>());
      return true;
    case 's':
      AppendFormatted(text, spec, "s", arguments->TakeText().c_str());
      return true;
    case 'p':
      AppendFormatted(text, spec, "p", reinterpret_cast<void*>(arguments->Take<uint64_t>()));
      return true;
    default:
      return false;
  }
}

// One lane's call. The text is put together first and written at once, so that lines of several
// threads do not mix.
int32_t Print(Warp& warp, uint32_t lane, uint64_t format_at, uint64_t arguments_at) {
  const std::string format = TextAt(warp, lane, format_at);
  Arguments arguments(warp, lane, arguments_at);
  std::string text;
  for (size_t at = 0; at < format.size() && text.size() < kMaxTextBytes;) {
    const char c = format[at++];
    if (c != '%') {
      text.push_back(c);
    } else if (at < format.size() && format[at] == '%') {
      text.push_back('%');
      ++at;
    } else if (!Convert(format, &at, &arguments, &text) || arguments.missing()) {
      // Nothing is printed of a text whose format or arguments cannot be read.
      return -1;
    }
  }
  std::fwrite(text.data(), 1, text.size(), stdout);
  return arguments.taken();
}

Step Vprintf(Warp& warp, const Instr& in) {
  const CallSite& site = warp.frame->function->calls[in.target];
  ForEach(warp.exec, [&](uint32_t lane) {
    const int32_t result = Print(warp, lane, Argument<uint64_t>(warp, site.args[0], lane),
                                 Argument<uint64_t>(warp, site.args[1], lane));
    std::memcpy(warp.LocalOf(lane, warp.frame->local_base + site.returns[0].offset_bytes), &result,
                sizeof(result));
  });
  // Now, and not when the process ends: a program that faults or is killed has printed what it
  // printed.
  std::fflush(stdout);
  return Step::kNext;
}

// cudaGraphSetConditional(handle, value).
// All lanes are served before a fault: the order of lanes is no reason to lose a value.
Step SetConditional(Warp& warp, const Instr& in) {
  const CallSite& site = warp.frame->function->calls[in.target];
  uint64_t unknown = 0;
  bool all_known = true;
  ForEach(warp.exec, [&](uint32_t lane) {
    const auto handle = Argument<uint64_t>(warp, site.args[0], lane);
    const auto condition = Condition::Find(handle);
    if (condition != nullptr) return condition->Set(Argument<uint32_t>(warp, site.args[1], lane));
    unknown = handle;
    all_known = false;
  });
  if (all_known) return Step::kNext;
  return warp.Fault(Outcome::kIllegalAddress, unknown,
                    "cudaGraphSetConditional of a handle that does not exist");
}

// malloc(size) and free(address).
Step Malloc(Warp& warp, const Instr& in) {
  // Without a heap malloc returns null, as when the heap is full.
  const CallSite& site = warp.frame->function->calls[in.target];
  KernelHeap* const heap = warp.block().run().grid.heap;
  ForEach(warp.exec, [&](uint32_t lane) {
    const auto size = Argument<uint64_t>(warp, site.args[0], lane);
    const uint64_t address = heap == nullptr ? 0 : heap->Allocate(size);
    std::memcpy(warp.LocalOf(lane, warp.frame->local_base + site.returns[0].offset_bytes), &address,
                sizeof(address));
  });
  return Step::kNext;
}

Step Free(Warp& warp, const Instr& in) {
  const CallSite& site = warp.frame->function->calls[in.target];
  KernelHeap* const heap = warp.block().run().grid.heap;
  uint64_t unknown = 0;
  ForEach(warp.exec, [&](uint32_t lane) {
    const auto address = Argument<uint64_t>(warp, site.args[0], lane);
    // free(nullptr) is allowed.
    if (address != 0 && (heap == nullptr || !heap->Free(address))) unknown = address;
  });
  if (unknown == 0) return Step::kNext;
  return warp.Fault(Outcome::kIllegalAddress, unknown, "free of what malloc has not given");
}

// A declaration may have any form: one whose sizes differ from the driver's function is unknown.
bool HasSizes(const std::vector<Slot>& slots, std::initializer_list<uint32_t> sizes) {
  size_t i = 0;
  if (slots.size() != sizes.size()) return false;
  for (const uint32_t size : sizes) {
    if (slots[i++].size_bytes != size) return false;
  }
  return true;
}

}  // namespace

Handler FindSystemCall(const Function& callee, const CallSite& site) {
  if (callee.name == "__assertfail" && HasSizes(site.args, {8, 8, 4, 8, 8})) return AssertFail;
  if (callee.name == "vprintf" && HasSizes(site.args, {8, 8}) && HasSizes(site.returns, {4})) {
    return Vprintf;
  }
  if (callee.name == "malloc" && HasSizes(site.args, {8}) && HasSizes(site.returns, {8})) {
    return Malloc;
  }
  if (callee.name == "free" && HasSizes(site.args, {8}) && site.returns.empty()) return Free;
  if (callee.name == "cudaGraphSetConditional" && HasSizes(site.args, {8, 4}) &&
      site.returns.empty()) {
    return SetConditional;
  }
  return nullptr;
}

}  // namespace gpuloom::softgpu
