// SPDX-License-Identifier: Apache-2.0
// Libraries, kernels, what is looked up in them, the linker.
#include <cstring>

#include "tests/bench/record_forms.h"

namespace gpuloom::executor {
namespace {

using namespace wire;  // nothing else is spoken of here

constexpr std::string_view kHead = ".version 8.0\n.target sm_90\n.address_size 64\n";
constexpr std::string_view kPlain = ".visible .entry k(.param .u64 a, .param .u32 n) { ret; }\n";
// Its variables and references are asked for; it is one of its own for each session.
constexpr std::string_view kState =
    ".visible .global .align 4 .u32 state = 7;\n.global .texref picture;\n";
constexpr std::string_view kManagedState =
    ".visible .global .attribute(.managed) .align 4 .b8 shown[4194304];\n";
constexpr uint64_t kManagedBytes = 4u << 20;
constexpr uint32_t kManyKernels = 2000;
constexpr size_t kManyNameBytes = 500;

constexpr LibraryId kCode{1}, kVariables{2}, kMany{3}, kPlaced{4}, kUnplaced{5}, kUnplacedApart{6},
    kNew{77};
constexpr KernelId kOrdinary{1}, kWide{RecordForms::kKernels + 1}, kNewKernel{60'000};
constexpr LinkId kLinked{1}, kOpen{2}, kFresh{3}, kNewLink{77};
constexpr uint32_t kTextType = 1;  // CU_JIT_INPUT_PTX

std::string WideKernel(size_t params) {
  std::string text = ".visible .entry wide(";
  for (size_t i = 0; i < params; ++i) {
    text += (i == 0 ? ".param .u64 p" : ", .param .u64 p") + std::to_string(i);
  }
  return text + ") { ret; }\n";
}

std::string ManyKernels() {
  std::string text(kHead);
  for (uint32_t i = 0; i < kManyKernels; ++i) {
    std::string name = "k" + std::to_string(i) + "_";
    name.resize(kManyNameBytes, 'n');
    text += ".visible .entry " + name + "() { ret; }\n";
  }
  return text;
}

// As many as a record carries.
std::vector<uint8_t> JitOptions() {
  constexpr LinkOption kOptions[] = {{7, 4}, {12, 1}, {13, 1}};
  std::vector<uint8_t> bytes(sizeof(kOptions));
  std::memcpy(bytes.data(), kOptions, sizeof(kOptions));
  return bytes;
}

}  // namespace

void RecordForms::SetUpCode() {
  const auto load = [this](LibraryId library, const std::string& text) {
    meter_->Ask<LibraryLoad>({library, 0, StageText(text), text.size()});
  };
  const std::string head(kHead);
  load(kCode, head + std::string(kPlain) + WideKernel(longest_.size() / 8));
  load(kVariables, head + std::string(kState) + std::string(kPlain));
  if (many_kernels_.empty()) many_kernels_ = ManyKernels();
  load(kMany, many_kernels_);
  for (const LibraryId library : {kPlaced, kUnplaced, kUnplacedApart}) {
    load(library, head + std::string(kManagedState) + "//" +
                      std::to_string(static_cast<uint32_t>(library)) + "\n");
  }
  Post<LibraryPlace>({kPlaced, 0, HostPtr{Host(kManaged)}});
  for (uint32_t id = 1; id <= kKernels; ++id) {
    Post<KernelGet>({kCode, KernelId{id}}, Bytes("k"));
  }
  Post<KernelGet>({kCode, kWide}, Bytes("wide"));
  Post<ReferenceGet>({kVariables, ReferenceId{1}, ReferenceKind::kTexture}, Bytes("picture"));
  const std::string text = head + std::string(kPlain);
  for (const LinkId link : {kLinked, kOpen, kFresh}) {
    Post<LinkCreate>({link});
    meter_->Ask<LinkAdd>({link, kTextType, StageText(text), text.size(), 0, 0}, Bytes("part"));
  }
  Post<LinkComplete>({kLinked});
}

void RecordForms::FillCode() {
  const auto image = [this](uint8_t byte) {
    std::memset(reinterpret_cast<void*>(Host(0)), byte, kImageBytes);
    return HostPtr{Host(0)};
  };
  On<LibraryLoad>(
      [=, this] {
        PostAny<LibraryLoad>({kNew, 0, HostPtr{Host(0)}, kImageBytes});
      },
      [=] { image(7); });
  On<LibraryCompile>(
      [=, this] {
        PostAny<LibraryCompile>({kNew, kMaxJitTextBytes, HostPtr{Host(0)}, kImageBytes,
                                 HostPtr{Host(kTexts)}, kMaxJitTextBytes, 0},
                                JitOptions());
      },
      [=, this] { image('\n'); });
  On<LibraryLoadByHash>([this] { PostAny<LibraryLoadByHash>({kNew, 0, {1, 2, 3, 4}}); });
  On<LibrarySizeKnown>([this] { Post<LibrarySizeKnown>({kImageBytes}); });
  On<LibraryPlace>([this] {
    Post<LibraryPlace>({kUnplaced, 0, HostPtr{Host(kManaged + kManagedBytes)}});
  });
  On<LibraryPlaceApart>([this] {
    Post<LibraryPlaceApart>({kUnplacedApart, 0, DevicePtr{managed_space_},
                             HostPtr{Host(kManaged + 2 * kManagedBytes)}});
  });
  On<LibraryUnload>([this] { Post<LibraryUnload>({kCode}); }).takes_away = true;
  On<LibraryKernels>([this] { Post<LibraryKernels>({kMany, 0}); });
  const auto longest_name = [] { return std::vector<uint8_t>(kMaxNameBytes, 'k'); };
  On<KernelGet>([=, this] { PostAny<KernelGet>({kMany, kNewKernel}, longest_name()); });
  On<GlobalGet>([=, this] { PostAny<GlobalGet>({kVariables}, longest_name()); });
  On<ManagedGet>([=, this] { PostAny<ManagedGet>({kPlaced}, longest_name()); });
  On<ReferenceGet>([=, this] {
    PostAny<ReferenceGet>({kVariables, ReferenceId{77}, ReferenceKind::kTexture}, longest_name());
  });
  On<ReferenceSet>([this] {
    ReferenceSet::Request request{ReferenceId{1}, 1, {}};
    request.look.resource = ViewResource::kLinear;
    request.look.address = large_;
    request.look.size_bytes = 4096;
    request.look.format = CU_AD_FORMAT_FLOAT;
    request.look.channels = 1;
    Post<ReferenceSet>(request);
  });
  // Behind launches that must go first.
  On<KernelSetAttribute>([this] {
    for (uint32_t id = 1; id < kStreams; ++id) {
      Post<Launch>({StreamId{id}, kOrdinary, {1, 1, 1}, {1, 1, 1}, 0, 0}, params_);
    }
    Post<KernelSetAttribute>({kOrdinary, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 4096});
  });
  On<KernelParams>([this] { Post<KernelParams>({kWide, 0}); });
  On<OccupancyBlocks>([this] { Post<OccupancyBlocks>({kOrdinary, 32, 0, 0, 0}); });
  On<OccupancySharedMemory>([this] { Post<OccupancySharedMemory>({kOrdinary, 1, 32}); });
  On<OccupancyClusters>([this] {
    OccupancyClusters::Request request{
        kOrdinary, ClusterQuestion::kMaxPotentialSize, {1, 1, 1}, {32, 1, 1}, 0, {}};
    PostAny<OccupancyClusters>(request);
  });
  On<ContextSetLimit>([this] { Post<ContextSetLimit>({CU_LIMIT_STACK_SIZE, 0, 4096}); });
}

void RecordForms::FillLinks() {
  On<LinkCreate>([this] { Post<LinkCreate>({kNewLink}, JitOptions()); });
  On<LinkAdd>(
      [this] {
        PostAny<LinkAdd>({kFresh, kTextType, HostPtr{Host(0)}, kImageBytes, 0, 0},
                         std::vector<uint8_t>(kMaxLinkNameBytes, 'n'));
      },
      [this] { std::memset(reinterpret_cast<void*>(Host(0)), '\n', kImageBytes); });
  On<LinkComplete>([this] { Post<LinkComplete>({kOpen}); });
  On<LinkRead>([this] { Post<LinkRead>({kLinked, 0, 0}); });
  On<LinkReport>([this] {
    Post<LinkReport>({kLinked, kMaxJitTextBytes, HostPtr{Host(kTexts)}, kMaxJitTextBytes, 0});
  });
  On<LinkDestroy>([this] { Post<LinkDestroy>({kFresh}); });
}

}  // namespace gpuloom::executor
