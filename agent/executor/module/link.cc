// SPDX-License-Identifier: Apache-2.0
// Linking for a tenant: one linker state of the driver's for each of the tenant's, on a thread of its
// own. NVIDIA's compiler (580.159.04) keeps something per thread between the calls about a state:
// made, fed and destroyed on changing threads of a pool, a state leaves those threads with what is
// freed, and the next module that is compiled there crashes.
#include <algorithm>

#include "agent/executor/device/device.h"
#include "agent/executor/memory/host_memory.h"
#include "agent/executor/module/jit_options.h"
#include "agent/executor/module/linker.h"
#include "agent/executor/module/links.h"
#include "agent/executor/session/host_budget.h"
#include "proto/cuda/image_check.h"

namespace gpuloom::executor {
namespace {

// As large as an image may be; bounds how much a link can make us copy at once.
constexpr uint64_t kMaxInputBytes = 1u << 30;
// Linker states of all tenants, and of one: each has a thread. Programs have one at a time.
constexpr size_t kMaxLive = 64;
constexpr std::chrono::seconds kForever{1'000'000'000};
constexpr uint32_t kMaxLiveOfTenant = 16;

}  // namespace

// The driver's state. Made, used and destroyed on the link's own thread.
struct Links::Link {
  Link(Device* owner, LeftFlag session_left, const void* of_tenant,
       std::shared_ptr<SessionBudget> budget)
      : device(owner),
        cuda(owner->cuda()),
        left(std::move(session_left)),
        tenant(of_tenant),
        charge(std::move(budget)) {}
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  // The linker is one for the process, so this waits for its turn as well, however long: a state
  // that is not destroyed is memory that is lost. `false`: the end of the session does not cut the
  // wait short.
  void Destroy() {
    if (state == nullptr) return;
    const Linker::Turn turn(&device->linker(), tenant, false, kForever);
    cuda.cuLinkDestroy(state);
    state = nullptr;
  }

  CUresult NoTurn() {
    jit.SetError(
        "gpuloom: other programs of the trust domain have kept the driver's linker for a minute; "
        "try again, or give this one a trust domain of its own");
    return CUDA_ERROR_TIMEOUT;
  }
  // Decides whether the driver's linker survives this input; if not, tells the tenant why.
  CUresult JudgeInput(CUjitInputType type, std::span<const uint8_t> data, HostCharge* unpacking) {
    std::string refusal;
    // Charges for the largest member so far, twice, because the driver unpacks it, too.
    const auto afford = [&](uint64_t bytes) {
      const uint64_t takes = 2 * bytes;
      // A session that has ended needs no answer: unpacking stops.
      if (*left) return false;
      if (takes <= unpacking->bytes() || unpacking->Add(takes - unpacking->bytes())) return true;
      refusal = unpacking->Refusal(takes);
      return false;
    };
    const bool is_text = type == CU_JIT_INPUT_PTX || type == CU_JIT_INPUT_NVVM;
    const bool may = is_text ? IsSoundLinkText(data, afford) : IsSoundLinkInput(data, afford);
    if (may) return CUDA_SUCCESS;
    jit.SetError(!refusal.empty() ? refusal
                                  : "gpuloom: what is to be linked is damaged, or is no cubin, "
                                    "fatbin, object file or archive");
    return refusal.empty() ? CUDA_ERROR_INVALID_IMAGE : CUDA_ERROR_OUT_OF_MEMORY;
  }
  // Returns false, and tells the tenant why, if the session may not use that much more.
  bool Afford(uint64_t bytes) {
    if (charge.Add(bytes)) return true;
    jit.SetError(charge.Refusal(bytes));
    return false;
  }

  std::span<const uint8_t> error_log() const {
    const std::string_view text = jit.error();
    return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
  }

  Device* const device;
  const Driver& cuda;
  const LeftFlag left;
  const void* const tenant;  // identity; never dereferenced
  HostCharge charge;  // the link's thread: for the driver's copies, and for what is linked of them
  CUlinkState state = nullptr;
  bool completing = false;         // ring thread: the tenant has asked for it
  bool complete = false;           // ring thread: `image` may be read
  const uint8_t* image = nullptr;  // the driver's, as long as `state`
  size_t image_bytes = 0;
  JitOptions jit;  // the driver writes there until the end
};

// Each link's thread destroys its state when it comes to it, and ends.
void Links::End() {
  links_.ForEach([this](LinkEntry& entry) {
    if (entry.link != nullptr)
      OnLinker(
          &entry, [link = entry.link] { link->Destroy(); }, [] {});
  });
  links_.Clear();
}

// The session lives until `done` has run, but its end does not wait for it: linking takes its time.
void Links::OnLinker(LinkEntry* entry, std::function<void()> work, std::function<void()> done) {
  ++linking_;
  entry->thread->Post(std::move(work), [this, done = std::move(done)] {
    --linking_;
    done();
  });
}

void Links::On(wire::Tag<wire::LinkCreate>, const wire::LinkCreate::Request& request,
               const wire::Record& record) {
  if (record.payload.size() % sizeof(wire::LinkOption) != 0) {
    return Refuse(wire::Fatal::kRecordSize);
  }
  auto link = std::make_shared<Link>(services_.device, left_, tenant_.get(), host_->budget);
  if (!link->jit.Add(record.payload)) return Refuse(wire::Fatal::kBadArgument);
  LinkEntry* entry = links_.Add(request.link);
  if (entry == nullptr) return Refuse(wire::Fatal::kBadHandle);
  const Caller caller = CallerOf(record);
  // Threads of ended sessions that still compile count, so restarting gains a tenant none.
  if (services_.modules->own_threads() >= kMaxLive || tenant_->link_threads >= kMaxLiveOfTenant) {
    links_.Take(request.link);
    return Reply<wire::LinkCreate>(caller, CUDA_ERROR_OUT_OF_MEMORY);
  }
  entry->link = link;
  ++tenant_->link_threads;
  // Runs when the thread has ended, not when its owner has gone.
  const std::shared_ptr<void> share(nullptr, [tenant = tenant_](void*) { --tenant->link_threads; });
  entry->thread = std::make_unique<OwnThread>(services_.modules, share);
  auto result = std::make_shared<CUresult>(CUDA_ERROR_NOT_SUPPORTED);
  OnLinker(
      entry,
      [link, result, &cuda = services_.device->cuda()] {
        if (cuda.cuLinkCreate_v2 == nullptr) return;
        const Linker::Turn turn(&link->device->linker(), link->tenant, *link->left,
                                Linker::kLongPatience);
        *result = CUDA_ERROR_TIMEOUT;
        if (!turn.taken()) return;
        *result = cuda.cuLinkCreate_v2(link->jit.count(), link->jit.options(), link->jit.values(),
                                       &link->state);
      },
      [this, link, result, id = request.link, caller] {
        const LinkEntry* made =
            services_.device->JudgeImage(*result) == CUDA_SUCCESS ? nullptr : links_.Find(id);
        if (made != nullptr && made->link == link) links_.Take(id);
        Reply<wire::LinkCreate>(caller, *result);
      });
}

Links::LinkEntry* Links::FindLink(wire::LinkId id_untrusted) {
  LinkEntry* entry = links_.Find(id_untrusted);
  if (entry == nullptr) Refuse(wire::Fatal::kBadHandle);
  return entry;
}

void Links::On(wire::Tag<wire::LinkAdd>, const wire::LinkAdd::Request& request,
               const wire::Record& record) {
  LinkEntry* entry = FindLink(request.link);
  if (entry == nullptr) return;
  const auto address = static_cast<uint64_t>(request.data);
  if (request.data_bytes == 0 || !host_->range.Contains(address, request.data_bytes)) {
    return Refuse(wire::Fatal::kBadRange);
  }
  struct Input {
    std::vector<CUjit_option> options;
    std::vector<void*> values;
    std::string name;
    CUresult result = CUDA_ERROR_INVALID_IMAGE;
  };
  auto input = std::make_shared<Input>();
  const size_t option_bytes = size_t{request.option_count} * sizeof(wire::LinkOption);
  if (request.option_count > wire::kMaxLinkOptions || option_bytes > record.payload.size() ||
      !ReadJitOptions(record.payload.first(option_bytes), &input->options, &input->values) ||
      request.type >= CU_JIT_NUM_INPUT_TYPES) {
    return Refuse(wire::Fatal::kBadArgument);
  }
  const Caller caller = CallerOf(record);
  if (entry->link->completing) return Reply<wire::LinkAdd>(caller, CUDA_ERROR_INVALID_VALUE);
  if (request.data_bytes > kMaxInputBytes) {
    return Reply<wire::LinkAdd>(caller, CUDA_ERROR_INVALID_IMAGE);
  }
  input->name.assign(record.payload.begin() + static_cast<ptrdiff_t>(option_bytes),
                     record.payload.end());
  OnLinker(
      entry,
      [input, link = entry->link, host = host_, request, address] {
        if (*link->left) return;
        const uint64_t data_bytes = request.data_bytes + 1;
        HostCharge copy(host->budget);
        const uint64_t before_bytes = link->charge.bytes();
        // Our copy, and the driver's, which stays.
        if (!link->Afford(data_bytes) || !copy.Add(data_bytes)) {
          link->jit.SetError(copy.Refusal(2 * data_bytes));
          link->charge.ShrinkTo(before_bytes);
          input->result = CUDA_ERROR_OUT_OF_MEMORY;
          return;
        }
        // The tenant may write on while we look: only the copy counts. A NUL ends PTX.
        std::vector<uint8_t> data(data_bytes);
        if (!host->Read(address, data.data(), request.data_bytes)) return;
        if (link->state == nullptr) return;  // a tenant that did not wait for its creation
        const auto type = static_cast<CUjitInputType>(request.type);
        const size_t bytes = request.data_bytes + (type == CU_JIT_INPUT_PTX ? 1 : 0);
        HostCharge unpacking(host->budget);
        input->result = link->JudgeInput(type, {data.data(), request.data_bytes}, &unpacking);
        if (input->result != CUDA_SUCCESS) return;
        const Linker::Turn turn(&link->device->linker(), link->tenant, *link->left,
                                Linker::kLongPatience);
        if (!turn.taken()) {
          input->result = link->NoTurn();
          return;
        }
        input->result =
            link->cuda.cuLinkAddData_v2(link->state, type, data.data(), bytes, input->name.c_str(),
                                        static_cast<unsigned>(input->options.size()),
                                        input->options.data(), input->values.data());
      },
      // Drops the reference to the arena on this thread.
      [this, input, link = entry->link, caller, held = host_] {
        Reply<wire::LinkAdd>(caller, services_.device->JudgeImage(input->result), {},
                             link->error_log());
      });
}

void Links::On(wire::Tag<wire::LinkComplete>, const wire::LinkComplete::Request& request,
               const wire::Record& record) {
  LinkEntry* entry = FindLink(request.link);
  if (entry == nullptr) return;
  if (entry->link->completing) {
    return Reply<wire::LinkComplete>(CallerOf(record), CUDA_ERROR_INVALID_VALUE);
  }
  entry->link->completing = true;
  auto result = std::make_shared<CUresult>(CUDA_SUCCESS);
  OnLinker(
      entry,
      [result, link = entry->link] {
        void* image = nullptr;
        *result = CUDA_ERROR_INVALID_HANDLE;
        if (link->state == nullptr) return;
        *result = CUDA_ERROR_OUT_OF_MEMORY;
        // Held as long as the state, because the driver keeps the result.
        if (!link->Afford(kCompilingTakes * link->charge.bytes())) return;
        const Linker::Turn turn(&link->device->linker(), link->tenant, *link->left,
                                Linker::kLongPatience);
        if (!turn.taken()) {
          *result = link->NoTurn();
          return;
        }
        *result = link->cuda.cuLinkComplete(link->state, &image, &link->image_bytes);
        link->image = static_cast<const uint8_t*>(image);
      },
      [this, result, link = entry->link, caller = CallerOf(record)] {
        link->complete = *result == CUDA_SUCCESS;
        Reply<wire::LinkComplete>(caller, services_.device->JudgeImage(*result),
                                  {link->image_bytes}, link->error_log());
      });
}

void Links::On(wire::Tag<wire::LinkRead>, const wire::LinkRead::Request& request,
               const wire::Record& record) {
  const LinkEntry* entry = FindLink(request.link);
  if (entry == nullptr) return;
  const Link& link = *entry->link;
  if (!link.complete || request.offset_bytes >= link.image_bytes) {
    return Refuse(wire::Fatal::kBadArgument);
  }
  const size_t bytes =
      std::min<size_t>(link.image_bytes - request.offset_bytes, wire::kReplyPayloadBytes);
  Reply<wire::LinkRead>(CallerOf(record), CUDA_SUCCESS, {},
                        {link.image + request.offset_bytes, bytes});
}

// Runs on the link's thread: after what the tenant requested before, and never while the driver writes.
void Links::On(wire::Tag<wire::LinkReport>, const wire::LinkReport::Request& request,
               const wire::Record& record) {
  LinkEntry* entry = FindLink(request.link);
  if (entry == nullptr) return;
  if (const wire::Fatal fatal = JudgeTexts(host_->range, request.texts, request.info_capacity_bytes,
                                           request.error_capacity_bytes);
      fatal != wire::Fatal::kNone) {
    return Refuse(fatal);
  }
  auto report = std::make_shared<wire::JitReport>();
  OnLinker(
      entry,
      [report, link = entry->link, host = host_, request] {
        *report = link->jit.Report(*host, static_cast<uint64_t>(request.texts),
                                   request.info_capacity_bytes, request.error_capacity_bytes);
      },
      [this, report, held = host_, caller = CallerOf(record)] {
        Reply<wire::LinkReport>(caller, CUDA_SUCCESS, {*report});
      });
}

void Links::On(wire::Tag<wire::LinkDestroy>, const wire::LinkDestroy::Request& request,
               const wire::Record& record) {
  if (FindLink(request.link) == nullptr) return;
  const std::unique_ptr<LinkEntry> entry = links_.Take(request.link);
  // After everything that the thread still has to do with it.
  OnLinker(
      entry.get(), [link = entry->link] { link->Destroy(); },
      [this, caller = CallerOf(record)] { Reply<wire::LinkDestroy>(caller, CUDA_SUCCESS); });
}

}  // namespace gpuloom::executor
