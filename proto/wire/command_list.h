// SPDX-License-Identifier: Apache-2.0
// The protocol's commands in the order of their opcodes, and what the compiler derives from the
// list: opcodes, names, sizes, and checks that each command is well-formed.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "proto/wire/array_commands.h"
#include "proto/wire/block_copy_commands.h"
#include "proto/wire/command.h"
#include "proto/wire/conditional_commands.h"
#include "proto/wire/context_limit_commands.h"
#include "proto/wire/copy_commands.h"
#include "proto/wire/device_memory_commands.h"
#include "proto/wire/event_commands.h"
#include "proto/wire/graph_commands.h"
#include "proto/wire/green_context_commands.h"
#include "proto/wire/host_function_commands.h"
#include "proto/wire/host_memory_commands.h"
#include "proto/wire/kernel_commands.h"
#include "proto/wire/launch_commands.h"
#include "proto/wire/library_commands.h"
#include "proto/wire/link_commands.h"
#include "proto/wire/managed_memory_commands.h"
#include "proto/wire/managed_variables_commands.h"
#include "proto/wire/memory_operation_commands.h"
#include "proto/wire/regions.h"
#include "proto/wire/shared_pool_commands.h"
#include "proto/wire/stream_commands.h"
#include "proto/wire/tensor_map_commands.h"
#include "proto/wire/texture_reference_commands.h"
#include "proto/wire/unsupported_commands.h"
#include "proto/wire/virtual_memory_commands.h"
#include "proto/wire/wire_struct.h"

namespace gpuloom::wire {

template <typename... Cs>
struct CommandList {
  static constexpr size_t kCount = sizeof...(Cs);
};

// Append only: the position is the opcode.
// clang-format off
using AllCommands = CommandList<
    LibraryLoad,
    LibraryUnload,
    KernelGet,
    GlobalGet,
    KernelSetAttribute,
    OccupancyBlocks,
    OccupancySharedMemory,
    MemAlloc,
    MemFree,
    MemInfo,
    HostRegister,
    HostUnregister,
    Copy,
    CopyInline,
    Fill,
    Launch,
    StreamCreate,
    StreamDestroy,
    EventCreate,
    EventDestroy,
    EventRecord,
    StreamWaitEvent,
    EventElapsed,
    TensorMapEncode,
    TensorMapReplaceAddress,
    LaunchEx,
    OccupancyClusters,
    KernelParams,
    LibraryKernels,
    GraphInstantiate,
    GraphUpdate,
    GraphUpload,
    GraphLaunch,
    GraphDestroy,
    AddressSpace,
    PhysicalCreate,
    PhysicalRelease,
    PhysicalExport,
    PhysicalImport,
    MemExport,
    MemMap,
    MemUnmap,
    MemSetAccess,
    StreamMark,
    ContextSetLimit,
    CopyBlock,
    FillBlock,
    ArrayCreate,
    ArrayLevel,
    ArrayDestroy,
    TextureCreate,
    TextureDestroy,
    SurfaceCreate,
    SurfaceDestroy,
    MemFreeLater,
    EventShare,
    EventOpen,
    EventDone,
    LinkCreate,
    LinkAdd,
    LinkComplete,
    LinkRead,
    LinkDestroy,
    HostFunction,
    StreamWriteValue,
    StreamWaitValue,
    UnsupportedCall,
    LibraryPlace,
    ManagedGet,
    LibraryLoadByHash,
    PoolShare,
    PoolOpen,
    PoolClose,
    PoolPut,
    PoolTake,
    ConditionCreate,
    ConditionsDrop,
    ReferenceGet,
    ReferenceSet,
    PartGet,
    PartSplit,
    GreenCreate,
    GreenDestroy,
    GreenStreamCreate,
    LinkReport,
    LibraryCompile,
    ManagedSpace,
    ManagedMap,
    ManagedUnmap,
    LibrarySizeKnown,
    LibraryPlaceApart>;
// clang-format on

// An empty struct has size 1 in C++ and takes 0 bytes on the wire.
template <typename T>
inline constexpr uint32_t kWireSize = std::is_empty_v<T> ? 0 : sizeof(T);

template <typename C>
concept HasPayload = requires {
  C::kMaxPayloadBytes;
};

template <typename C>
constexpr uint32_t MaxPayloadBytes() {
  if constexpr (HasPayload<C>) {
    return C::kMaxPayloadBytes;
  } else {
    return 0;
  }
}

template <typename C>
concept Command =
    WireStruct<typename C::Request> && WireStruct<typename C::Reply> && kWireSize<typename C::Reply>
<= sizeof(ReplySlot::reply) &&
    sizeof(RecordHeader) + sizeof(typename C::Request) + MaxPayloadBytes<C>() <= kMaxRecordBytes &&
    (C::kReply || std::is_same_v<typename C::Reply, NoReply>)&&!C::kName.empty();

struct CommandInfo {
  std::string_view name;
  uint32_t request_bytes;
  uint32_t reply_bytes;
  uint32_t max_payload_bytes;
  bool has_reply;
};

namespace internal {

template <typename C, typename List>
struct OpcodeOf;
template <typename C, typename... Cs>
struct OpcodeOf<C, CommandList<Cs...>> {
  static constexpr uint16_t Find() {
    uint16_t i = 0;
    bool found = ((std::is_same_v<C, Cs> ? true : (++i, false)) || ...);
    return found ? i : kPadOpcode;
  }
};

template <Command... Cs>
constexpr std::array<CommandInfo, sizeof...(Cs)> Describe(CommandList<Cs...>) {
  return {CommandInfo{Cs::kName, kWireSize<typename Cs::Request>, kWireSize<typename Cs::Reply>,
                      MaxPayloadBytes<Cs>(), Cs::kReply}...};
}

}  // namespace internal

template <Command C>
inline constexpr uint16_t kOpcode = internal::OpcodeOf<C, AllCommands>::Find();

// By opcode.
inline constexpr auto kCommands = internal::Describe(AllCommands{});

constexpr std::string_view CommandName(uint16_t opcode_untrusted) {
  return opcode_untrusted < kCommands.size() ? kCommands[opcode_untrusted].name : "unknown command";
}

}  // namespace gpuloom::wire
