#include "agent/executor/quiet.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

namespace gpuloom::executor {
namespace {

// Long enough for the gaps that most programs leave, short beside what starting a program takes.
constexpr uint64_t kPatienceNs = 20'000'000;
// What nobody waits for is left until the device has been idle for so long.
constexpr uint64_t kQuietNs = 1'000'000;

constexpr char kFirstImage[] =
    ".version 6.4\n.target sm_75\n.address_size 64\n.visible .entry first()\n{\nret;\n}\n";
constexpr char kSecondImage[] =
    ".version 6.4\n.target sm_75\n.address_size 64\n.visible .entry second()\n{\nret;\n}\n";

constexpr std::chrono::milliseconds kLongestProbe{50};

// Keeps a stream busy until it is told to stop, or for kLongestProbe.
struct Busy {
  std::atomic<bool> stop{false};
  std::atomic<bool> ran_out{false};
  std::atomic<bool> ended{false};

  static void CUDA_CB Run(void* busy) {
    auto* self = static_cast<Busy*>(busy);
    const auto end = std::chrono::steady_clock::now() + kLongestProbe;
    while (!self->stop && !self->ran_out) {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
      if (std::chrono::steady_clock::now() > end) self->ran_out = true;
    }
    self->ended = true;
  }
};

bool LoadKernel(const Driver& cuda, const char* image, const char* name, CUlibrary* library) {
  CUkernel kernel = nullptr;
  CUfunction function = nullptr;
  return cuda.cuLibraryLoadData(library, image, nullptr, nullptr, 0, nullptr, nullptr, 0) ==
             CUDA_SUCCESS &&
         cuda.cuLibraryGetKernel(&kernel, *library, name) == CUDA_SUCCESS &&
         cuda.cuKernelGetFunction(&function, kernel) == CUDA_SUCCESS;
}

}  // namespace

bool LoadsWaitForDevice(Device* device) {
  const Driver& cuda = device->cuda();
  CUlibrary first = nullptr;
  CUlibrary second = nullptr;
  CUstream stream = nullptr;
  // The first load pays for the compiler's start, which must not be mistaken for waiting.
  if (cuda.cuLaunchHostFunc == nullptr || !LoadKernel(cuda, kFirstImage, "first", &first) ||
      device->TakeStream(0, &stream) != CUDA_SUCCESS) {
    return true;
  }
  Busy busy;
  if (cuda.cuLaunchHostFunc(stream, &Busy::Run, &busy) != CUDA_SUCCESS) return true;
  const bool loaded = LoadKernel(cuda, kSecondImage, "second", &second);
  const bool waited = busy.ran_out;
  busy.stop = true;
  cuda.cuStreamSynchronize(stream);
  while (!busy.ended) std::this_thread::yield();
  device->GiveStream(0, stream);
  cuda.cuLibraryUnload(first);
  if (second != nullptr) cuda.cuLibraryUnload(second);
  return !loaded || waited;
}

void Quiet::Need(const void* owner, std::function<void()> work, std::function<void()> done) {
  if (!loads_wait_) return pool_->Post(std::move(work), std::move(done));
  needed_.push_back({owner, std::move(work), std::move(done)});
}

uint32_t Quiet::Drop(const void* owner) {
  return static_cast<uint32_t>(
      std::erase_if(needed_, [&](const Piece& piece) { return piece.owner == owner; }));
}

void Quiet::Close() {
  closed_ = true;
  std::deque<Piece> pieces;
  pieces.swap(needed_);
  pieces.clear();  // may bury, which is refused now
  pieces.swap(buried_);
}

void Quiet::Bury(std::function<void()> work, std::function<void()> done) {
  if (closed_) return;
  buried_.push_back({nullptr, std::move(work), std::move(done)});
}

void Quiet::HurryBuried() {
  for (Piece& piece : buried_) needed_.push_back(std::move(piece));
  buried_.clear();
}

bool Quiet::Tick(uint64_t now_ns, bool at_device, uint64_t idle_ns) {
  if (empty() && !running_) {
    holding_ = false;
    return false;
  }
  for (Piece& piece : needed_) {
    if (piece.since_ns == 0) piece.since_ns = now_ns;
  }
  const bool impatient = !needed_.empty() && now_ns - needed_.front().since_ns >= kPatienceNs;
  holding_ = running_ || impatient;
  if (running_ || at_device) return false;
  if (!needed_.empty()) {
    Begin(&needed_);
  } else if (!buried_.empty() && idle_ns >= kQuietNs) {
    Begin(&buried_);
  }
  holding_ = running_;
  return running_;
}

void Quiet::Begin(std::deque<Piece>* pieces) {
  running_ = true;
  Piece piece = std::move(pieces->front());
  pieces->pop_front();
  pool_->Post(std::move(piece.work), [this, done = std::move(piece.done)] {
    running_ = false;
    if (done) done();
  });
}

}  // namespace gpuloom::executor
