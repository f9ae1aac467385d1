// SPDX-License-Identifier: Apache-2.0
// CUDA's streams for a session's: made with the first work, and again in another band of priorities or on other multiprocessors.
#include <utility>

#include "agent/executor/device/device.h"
#include "agent/executor/device/green_context.h"
#include "agent/executor/device/partitions.h"
#include "agent/executor/session/time_sharing.h"
#include "agent/executor/stream/priority_band.h"
#include "agent/executor/stream/submission.h"
#include "agent/executor/trace/tracer.h"
#include "proto/cuda/return_if_error.h"

namespace gpuloom::executor {

// Where the stream's kernels run at present. A green context of the program's that was created within other
// multiprocessors may have more of them than the session has.
CUcontext Submission::ContextOf(const Stream& stream) const {
  const CUcontext session = port_->context();
  const bool is_within = stream.green != nullptr && (stream.green->within == session ||
                                                     session == services_.device->context());
  return is_within ? stream.green->made.converted : session;
}

CUgreenCtx Submission::GreenOf(const Stream& stream, CUcontext context) const {
  if (context == services_.device->context()) return nullptr;
  const bool is_green = stream.green != nullptr && context == stream.green->made.converted;
  return is_green ? stream.green->made.context : port_->partition()->made.context;
}

// Only streams of the primary context come from the device's pool; those of a green context, the
// program's own or the partition, are made and destroyed.
CUresult Submission::NewStream(const Stream& stream, int priority, CUstream* made) {
  // The driver would wait for the device if it has memory by now.
  const CUresult refusal = services_.device->StreamRefusal(stream.cuda_green);
  if (refusal != CUDA_SUCCESS && !HasSpareStream(stream.cuda_green, priority)) return refusal;
  return stream.cuda_green == nullptr
             ? services_.device->TakeStream(priority, made)
             : services_.device->TakeGreenStream(stream.cuda_green, priority, made);
}

// Makes the CUDA stream with the first work for it, and again when the session's class or
// multiprocessors have changed: CUDA can change neither for an existing one. All streams are
// non-blocking to CUDA: the legacy stream's barrier must not cross tenants.
CUresult Submission::MakeStream(Stream& stream) {
  const CUcontext context = ContextOf(stream);
  // The session is held while it moves to other multiprocessors, so nothing of the stream is at the
  // device if the context differs.
  const bool stays = stream.context == context;
  if (stream.cuda != nullptr && stays && stream.terms == services_.sharing->changes()) {
    return CUDA_SUCCESS;
  }
  const int priority = port_->Band().Map(stream.priority);
  // It moves to its new band when that keeps nobody waiting; until then its work goes on in the old one.
  if (stream.cuda != nullptr && stays && priority != stream.cuda_priority &&
      !HasSpareStream(stream.cuda_green, priority)) {
    stream.drains = false;
    return CUDA_SUCCESS;
  }
  CUstream former = nullptr;
  const CUgreenCtx former_green = stream.cuda_green;
  if (stream.cuda != nullptr && (!stays || priority != stream.cuda_priority)) {
    if (stays && stream.AtDevice()) {
      // The stream moves to its new band as soon as CUDA has nothing of it. A program that always has more to do must
      // not put that off: what comes next would wait for what is there in any case, so the device loses only a moment.
      stream.drains = true;
      return CUDA_SUCCESS;
    }
    if (stream.waits_enqueued) {
      // Nothing of the stream is at the device, but perhaps a wait for an event of another stream or session.
      FinishGraphs(stream);
      former = stream.cuda;
      --tenant_->streams;
    } else {
      GiveStream(stream);
    }
    stream.cuda = nullptr;
  }
  stream.drains = false;
  stream.terms = services_.sharing->changes();
  stream.cuda_priority = priority;
  stream.context = context;
  if (stream.cuda != nullptr) return CUDA_SUCCESS;
  stream.cuda_green = GreenOf(stream, context);
  CUDA_RETURN_IF_ERROR(NewStream(stream, priority, &stream.cuda));
  ++tenant_->streams;
  if (stream.charge != nullptr) stream.charge->OnMade();
  if (services_.tracer != nullptr) {
    services_.tracer->OnStreamAcquired(
        stream.cuda, {id(), share_.allocation_id, static_cast<uint32_t>(stream.id)});
  }
  if (former != nullptr) WaitForFormer(stream.cuda, former, former_green);
  return CUDA_SUCCESS;
}

// `former` is destroyed with its waits not yet over, which CUDA allows: it frees the stream when
// they are. The event behind them carries them over to the new stream.
void Submission::WaitForFormer(CUstream stream, CUstream former, CUgreenCtx former_green) {
  const Driver& cuda = services_.device->cuda();
  CUevent event = nullptr;
  CUresult result = services_.device->TakeEvent(/*timing=*/false, &event);
  if (result == CUDA_SUCCESS) result = cuda.cuEventRecord(event, former);
  if (result == CUDA_SUCCESS) result = cuda.cuStreamWaitEvent(stream, event, 0);
  services_.device->Judge(result);
  if (event != nullptr) services_.device->GiveEvent(/*timing=*/false, event);
  if (services_.tracer != nullptr) services_.tracer->OnStreamReleased(former);
  services_.device->DropStream(former, former_green);
}

void Submission::GiveStream(Stream& stream) {
  FinishGraphs(stream);
  if (stream.cuda != nullptr) --tenant_->streams;
  if (services_.tracer != nullptr) services_.tracer->OnStreamReleased(stream.cuda);
  if (stream.cuda_green != nullptr) {
    return services_.device->DropStream(stream.cuda, stream.cuda_green);
  }
  services_.device->GiveStream(stream.cuda_priority, stream.cuda);
}

bool Submission::HasObjects(const Stream& stream, const StreamCommand& command) const {
  using enum Device::EventUse;
  Device::EventUse use = kMark;
  const auto* record = std::get_if<RecordWork>(&command.work);
  if (record != nullptr) use = tenant_->events <= Tenant::kFewEvents ? kFew : kKept;
  if (!services_.device->HasSpareEvent(record != nullptr && record->point->timing, use)) {
    return false;
  }
  // One that only its priority keeps from what it should be goes on as it is (MakeStream).
  const CUcontext context = ContextOf(stream);
  if (stream.cuda != nullptr && stream.context == context) return true;
  const CUgreenCtx green = GreenOf(stream, context);
  // Without one that the driver refuses, the work fails (NewStream).
  return HasSpareStream(green, port_->Band().Map(stream.priority)) ||
         services_.device->StreamRefusal(green) != CUDA_SUCCESS;
}

bool Submission::HasSpareStream(CUgreenCtx green, int priority) const {
  return green == nullptr
             ? services_.device->HasSpareStream(priority, tenant_->streams < Tenant::kFewStreams)
             : services_.device->HasSpareGreenStream(green);
}

}  // namespace gpuloom::executor
