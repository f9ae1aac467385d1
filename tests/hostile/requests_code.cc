// SPDX-License-Identifier: Apache-2.0
// Libraries, kernels, the linker, launches, parts of the device.
#include <algorithm>

#include "tests/hostile/images.h"
#include "tests/hostile/requests.h"

namespace gpuloom::testing {
namespace {

constexpr uint32_t kTextBytes = 4096;  // room for what a compiler says

}  // namespace

// Now and then more or less than the image, up to a hole that is larger than any.
Requests::Part Requests::AnyImage() {
  Part image = random_.Of(images_);
  if (random_.Chance(6)) {
    const uint64_t sizes[] = {1,        8,         image.size_bytes / 2, kImageRoom,
                              1u << 20, 64u << 20, (1u << 30) + 1};
    image.size_bytes = sizes[random_.Below(std::size(sizes))];
  }
  return image;
}

// Says so when it is loaded, or when its managed variables want a place first.
bool Requests::ExpectLibrary(uint32_t library, Draft* draft, uint64_t managed_offset) {
  if (library == 0) return false;
  libraries_.Add(library, false);
  const bool has_result = draft->opcode == wire::kOpcode<wire::LibraryCompile>;
  draft->learn = [this, library, managed_offset, has_result](const wire::ReplySlot& answer) {
    uint32_t managed_bytes = 0, result = answer.result;
    if (managed_offset != SIZE_MAX) std::memcpy(&managed_bytes, answer.reply + managed_offset, 4);
    if (has_result && result == 0) std::memcpy(&result, answer.reply, 4);
    const bool placed = result == 0 && managed_bytes == 0;
    // Until it has its place it keeps the id, but not to be used.
    if (result != 0 || placed) return libraries_.Answer(library, placed);
    unplaced_.Add(library, true);
  };
  return true;
}

void Requests::FillCode() {
  On<wire::LibraryLoad>([this](auto* request, Draft* draft) {
    const Part image = AnyImage();
    const uint32_t library = libraries_.New(&random_);
    *request = {wire::LibraryId{library}, 0, wire::HostPtr{image.begin}, image.size_bytes};
    return ExpectLibrary(library, draft, offsetof(wire::LibraryLoad::Reply, managed_bytes));
  });
  On<wire::LibraryCompile>([this](auto* request, Draft* draft) {
    const Part image = AnyImage();
    const uint32_t library = libraries_.New(&random_);
    *request = {wire::LibraryId{library},
                kTextBytes,
                wire::HostPtr{image.begin},
                image.size_bytes,
                wire::HostPtr{host_begin_ + kCopiesBegin},
                kTextBytes,
                0};
    draft->payload = JitOptions();
    return ExpectLibrary(library, draft, offsetof(wire::LibraryCompile::Reply, managed_bytes));
  });
  On<wire::LibrarySizeKnown>([this](auto* request, Draft*) {
    request->image_bytes = random_.Chance(2) ? random_.Next() : AnyImage().size_bytes;
    return true;
  });
  On<wire::LibraryLoadByHash>([this](auto* request, Draft*) {
    request->library = wire::LibraryId{libraries_.New(&random_)};
    for (uint64_t& word : request->hash) word = random_.Next();
    return request->library != wire::LibraryId{0};
  });
  On<wire::LibraryPlace>([this](auto* request, Draft* draft) {
    const uint32_t library = unplaced_.Used(&random_);
    if (library == 0 || registered_.empty() || !keeps_addresses_) return false;
    unplaced_.Drop(library);
    *request = {wire::LibraryId{library}, 0, wire::HostPtr{AnyRegistered().begin}};
    return Expect(&libraries_, library, draft);
  });
  // Where memory is mapped, which its kernels may then use.
  On<wire::LibraryPlaceApart>([this](auto* request, Draft* draft) {
    const uint32_t library = unplaced_.Used(&random_), slot = managed_slots_.Used(&random_);
    if (library == 0 || slot == 0 || registered_.empty() || !keeps_addresses_) return false;
    unplaced_.Drop(library);
    *request = {wire::LibraryId{library}, 0, wire::DevicePtr{managed_[slot].begin},
                wire::HostPtr{AnyRegistered().begin}};
    return Expect(&libraries_, library, draft);
  });
  On<wire::LibraryUnload>([this](auto* request, Draft*) {
    const uint32_t library = libraries_.Used(&random_);
    libraries_.Drop(library);
    kernels_.DropOf(library);
    references_.DropOf(library);
    request->library = wire::LibraryId{library};
    return library != 0;
  });
  On<wire::LibraryKernels>([this](auto* request, Draft*) {
    *request = {wire::LibraryId{libraries_.Used(&random_)}, random_.Below(20)};
    return request->library != wire::LibraryId{0};
  });
  On<wire::KernelGet>([this](auto* request, Draft* draft) {
    const uint32_t library = libraries_.Used(&random_), kernel = kernels_.New(&random_);
    if (library == 0 || kernel == 0) return false;
    *request = {wire::LibraryId{library}, wire::KernelId{kernel}};
    draft->payload = Text(kHostileKernels[random_.Below(std::size(kHostileKernels))]);
    kernels_.Add(kernel, false, library);
    OnAnswer<wire::KernelGet>(draft, [this, kernel](bool ok, const auto& reply) {
      kernels_.Answer(kernel, ok);
      if (ok) kernel_params_[kernel] = reply.param_bytes;
    });
    return true;
  });
  const auto variable = [this](auto* request, Draft* draft) {
    request->library = wire::LibraryId{libraries_.Used(&random_)};
    draft->payload = Text(kHostileVariables[random_.Below(std::size(kHostileVariables))]);
    return request->library != wire::LibraryId{0};
  };
  On<wire::GlobalGet>(variable);
  On<wire::ManagedGet>(variable);
  On<wire::ReferenceGet>([this](auto* request, Draft* draft) {
    const uint32_t library = libraries_.Used(&random_), reference = references_.New(&random_);
    if (library == 0 || reference == 0) return false;
    *request = {wire::LibraryId{library}, wire::ReferenceId{reference},
                wire::ReferenceKind::kTexture};
    draft->payload = Text("picture");
    return Expect(&references_, reference, draft, library);
  });
  On<wire::ReferenceSet>([this](auto* request, Draft*) {
    const uint32_t reference = references_.Used(&random_);
    if (reference == 0 || memory_.empty()) return false;
    *request = {wire::ReferenceId{reference}, random_.Below(2), AnyLook(AnyArray())};
    return true;
  });
  On<wire::KernelSetAttribute>([this](auto* request, Draft*) {
    *request = {wire::KernelId{kernels_.Used(&random_)}, static_cast<int>(random_.Below(16)),
                static_cast<int>(random_.Below(100))};
    return request->kernel != wire::KernelId{0};
  });
  On<wire::KernelParams>([this](auto* request, Draft*) {
    const uint32_t kernel = kernels_.Used(&random_);
    *request = {wire::KernelId{kernel}, 0};
    return kernel != 0 && kernel_params_[kernel] != 0;
  });
  On<wire::OccupancyBlocks>([this](auto* request, Draft*) {
    *request = {wire::KernelId{kernels_.Used(&random_)}, 32, 0, 0, 0};
    return request->kernel != wire::KernelId{0};
  });
  On<wire::OccupancySharedMemory>([this](auto* request, Draft*) {
    *request = {wire::KernelId{kernels_.Used(&random_)}, 1, 32};
    return request->kernel != wire::KernelId{0};
  });
  On<wire::ContextSetLimit>([this](auto* request, Draft*) {
    // Who raises one pays until the executor ends: the honest tenant has raised them; a wild one has none beside it.
    if (wild_) return *request = {random_.Of<uint32_t>({0, 1, 2, 4}), 0, 0}, true;
    // CU_LIMIT_STACK_SIZE, PRINTF_FIFO_SIZE, MALLOC_HEAP_SIZE …
    *request = {random_.Of<uint32_t>({0, 1, 2, 4}), 0, uint64_t{1} << random_.Below(16)};
    return random_.Chance(20);
  });
}

std::vector<uint8_t> Requests::JitOptions() {
  std::vector<wire::LinkOption> options;
  if (random_.Chance(50)) options.push_back({7, random_.Below(5)});  // the optimisation level
  if (random_.Chance(1)) options.push_back({random_.Below(40), random_.Below(100)});
  std::vector<uint8_t> bytes(options.size() * sizeof(wire::LinkOption));
  if (!bytes.empty()) std::memcpy(bytes.data(), options.data(), bytes.size());
  return bytes;
}

void Requests::FillLinks() {
  On<wire::LinkCreate>([this](auto* request, Draft* draft) {
    request->link = wire::LinkId{links_.New(&random_)};
    draft->payload = JitOptions();
    return Expect(&links_, static_cast<uint32_t>(request->link), draft);
  });
  On<wire::LinkAdd>([this](auto* request, Draft* draft) {
    const Part image = AnyImage();
    *request = {wire::LinkId{links_.Used(&random_)},
                random_.Chance(80) ? 1u : random_.Below(6),
                wire::HostPtr{image.begin},
                image.size_bytes,
                0,
                0};
    draft->payload = Text("part");
    return request->link != wire::LinkId{0};
  });
  const auto name = [this](auto* request, Draft*) {
    request->link = wire::LinkId{links_.Used(&random_)};
    return request->link != wire::LinkId{0};
  };
  On<wire::LinkComplete>([this, name](auto* request, Draft* draft) {
    if (!name(request, draft)) return false;
    OnAnswer<wire::LinkComplete>(
        draft, [this, link = static_cast<uint32_t>(request->link)](bool ok, const auto&) {
          if (ok) linked_.Add(link, true);
        });
    return true;
  });
  On<wire::LinkRead>([this](auto* request, Draft*) {
    request->link = wire::LinkId{linked_.Used(&random_)};
    return request->link != wire::LinkId{0};
  });
  On<wire::LinkReport>([this](auto* request, Draft*) {
    *request = {wire::LinkId{links_.Used(&random_)}, kTextBytes,
                wire::HostPtr{host_begin_ + kCopiesBegin}, kTextBytes, 0};
    return request->link != wire::LinkId{0};
  });
  On<wire::LinkDestroy>([this](auto* request, Draft*) {
    const uint32_t link = links_.Used(&random_);
    links_.Drop(link);
    linked_.Drop(link);
    request->link = wire::LinkId{link};
    return link != 0;
  });
}

std::vector<uint8_t> Requests::ParamsOf(uint32_t kernel) {
  std::vector<uint8_t> params = Bytes(kernel_params_[kernel]);
  const uint64_t address = AnyAddress();
  if (params.size() >= sizeof(address)) std::memcpy(params.data(), &address, sizeof(address));
  return params;
}

void Requests::FillLaunches() {
  const auto shape = [this](auto* request, Draft* draft) {
    const uint32_t kernel = kernels_.Used(&random_);
    if (kernel == 0) return false;
    request->stream = AnyStream();
    request->kernel = wire::KernelId{kernel};
    for (uint32_t* size : {&request->grid[0], &request->grid[1], &request->grid[2]}) *size = 1;
    for (uint32_t* size : {&request->block[0], &request->block[1], &request->block[2]}) *size = 1;
    request->grid[0] = 1 + random_.Below(4);
    request->block[0] = 1 + random_.Below(32);
    draft->has_grid = true;
    draft->payload = ParamsOf(kernel);
    return true;
  };
  const auto attributes = [this](wire::LaunchAttributes* wanted) {
    if (random_.Chance(50)) {
      wanted->set |= 1u << 8;
      wanted->priority = -static_cast<int>(random_.Below(3));
    }
    if (random_.Chance(20)) {
      wanted->set |= 1u << 4;
      for (uint32_t& size : wanted->cluster) size = 1;
    }
    if (random_.Chance(20)) {
      wanted->set |= 1u << 6;
      wanted->programmatic_serialization = 1;
    }
  };
  On<wire::Launch>(shape);
  On<wire::LaunchEx>([shape, attributes](auto* request, Draft* draft) {
    attributes(&request->attributes);
    return shape(request, draft);
  });
  On<wire::OccupancyClusters>([this, attributes](auto* request, Draft*) {
    request->kernel = wire::KernelId{kernels_.Used(&random_)};
    request->question = static_cast<wire::ClusterQuestion>(random_.Below(2));
    for (uint32_t* size : {&request->grid[0], &request->grid[1], &request->grid[2]}) *size = 1;
    for (uint32_t* size : {&request->block[0], &request->block[1], &request->block[2]}) *size = 1;
    attributes(&request->attributes);
    return request->kernel != wire::KernelId{0};
  });
}

void Requests::FillGreen() {
  const auto split = [this]() -> wire::SplitArguments {
    return {0, 1u << random_.Below(5), 1 + random_.Below(4), 0};
  };
  On<wire::PartGet>([](auto* request, Draft*) {
    request->part = wire::kWholeDevice;
    return true;
  });
  On<wire::PartSplit>([split](auto* request, Draft*) {
    *request = {wire::kWholeDevice, 0, split()};
    return true;
  });
  On<wire::GreenCreate>([this, split](auto* request, Draft* draft) {
    request->context = wire::GreenContextId{greens_.New(&random_)};
    request->part = wire::DevicePartId{1 + random_.Below(3)};
    request->of = wire::kWholeDevice;
    request->split = split();
    request->picked[0] = 1;
    return Expect(&greens_, static_cast<uint32_t>(request->context), draft);
  });
  On<wire::GreenDestroy>([this](auto* request, Draft*) {
    const uint32_t green = greens_.Used(&random_);
    greens_.Drop(green);
    request->context = wire::GreenContextId{green};
    return green != 0;
  });
  On<wire::GreenStreamCreate>([this](auto* request, Draft* draft) {
    const uint32_t green = greens_.Used(&random_);
    if (green == 0) return false;
    *request = {wire::StreamId{streams_.New(&random_)}, wire::GreenContextId{green}, 0, 0};
    return Expect(&streams_, static_cast<uint32_t>(request->stream), draft);
  });
}

}  // namespace gpuloom::testing
