// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/session/session_port.h"

#include <utility>

#include "agent/executor/device/context_memory.h"
#include "agent/executor/device/device.h"
#include "agent/executor/device/device_charge.h"
#include "agent/executor/device/partitions.h"
#include "agent/executor/memory/host_memory.h"
#include "agent/executor/process/log.h"
#include "agent/executor/session/time_sharing.h"
#include "agent/executor/stream/priority_band.h"
#include "agent/executor/stream/stream_set.h"

namespace gpuloom::executor {

SessionPort::SessionPort(const Services& services, const control::AddSession& order,
                         TenantRef tenant, SharedRegion commands, SharedRegion completions,
                         StreamSet* streams)
    : services_(services),
      order_(order),
      tenant_(std::move(tenant)),
      commands_(std::move(commands)),
      completions_(std::make_shared<SharedRegion>(std::move(completions))),
      reader_(reinterpret_cast<const wire::CommandRegion*>(commands_.data()),
              &reinterpret_cast<wire::CompletionRegion*>(completions_->data())->head),
      writer_(reinterpret_cast<wire::CompletionRegion*>(completions_->data()),
              reinterpret_cast<const wire::CommandRegion*>(commands_.data())),
      streams_(*streams),
      share_(services.sharing->Begin(order)),
      host_(std::make_shared<HostMemory>()),
      modules_(services.modules, tenant_.get()),
      memory_(services.memory, tenant_.get()) {
  // Whatever the message had there: the label is logged as a C string.
  order_.label[sizeof(order_.label) - 1] = '\0';
}

// An error that CUDA would return from some later call. The log line is for debugging only, because
// a tenant can cause it at will.
void SessionPort::ReportAsyncError(wire::StreamId stream, CUresult result) {
  // A lost device is reported by PublishFault, to all sessions.
  if (result == CUDA_SUCCESS || services_.device->lost() != CUDA_SUCCESS) return;
  writer_.PublishAsyncError(static_cast<uint32_t>(result));
  Log(LogLevel::kDebug, "session %llu (%s): a command of stream %u failed: %s",
      static_cast<unsigned long long>(id()), label(), static_cast<unsigned>(stream),
      services_.device->NameOf(result));
}

// Streams that the tenant has destroyed are not found, though they may still have commands.
Stream* SessionPort::FindStream(wire::StreamId id_untrusted) {
  Stream* stream = streams_.Find(id_untrusted);
  if (stream == nullptr) Refuse(wire::Fatal::kBadHandle);
  return stream;
}

bool SessionPort::OwnsHost(uint64_t address_untrusted, uint64_t size_bytes_untrusted) const {
  return host_->registered.Contains(address_untrusted, size_bytes_untrusted);
}

void SessionPort::LogRefusal(std::string_view command, CUresult result) const {
  Log(LogLevel::kDebug, "session %llu (%s): %.*s: %s", static_cast<unsigned long long>(id()),
      label(), static_cast<int>(command.size()), command.data(), services_.device->NameOf(result));
}

void Part::Charge(uint64_t bytes, std::function<void(CUresult, DeviceChargeRef)> done) {
  ChargeDevice(services_.scheduler, id(), bytes, &outstanding_, std::move(done));
}

// What the allocation pays already, for a stream that is gone, need not be asked for.
void Part::ChargeStream(wire::StreamId stream,
                        std::function<void(CUresult, StreamChargeRef, bool)> done) {
  if (static_cast<uint32_t>(stream) <= kFreeStreams) return done(CUDA_SUCCESS, nullptr, true);
  StreamCharges* const all = services_.context->streams();
  if (StreamChargeRef paid = all->Take(services_.device, order_.allocation_id)) {
    return done(CUDA_SUCCESS, std::move(paid), true);
  }
  Charge(kStreamTakesBytes,
         [this, all, done = std::move(done)](CUresult charged, DeviceChargeRef charge) {
           if (!serving()) return;
           StreamChargeRef its;
           if (charge != nullptr) {
             its = all->Add(services_.device, order_.allocation_id, std::move(charge));
           }
           done(charged, std::move(its), false);
         });
}

// A partition is a green context, which CUDA takes for a context of its own where it is converted.
CUcontext SessionPort::context() const {
  return partition_ == nullptr ? services_.device->context() : partition_->made.converted;
}

// Computed each time, because the policy may have changed the class.
PriorityBand SessionPort::Band() const {
  return PriorityBand::Of(services_.sharing->ClassOf(share_), services_.device->priority_least(),
                          services_.device->priority_greatest());
}

}  // namespace gpuloom::executor
