// gpuloom run: a tenant on a bare machine, for people without Kubernetes, for tests and for
// benchmarks.
//
//   gpuloom run ── starts ──→ the command, with libgpuloom.so preloaded and NVML in its library path
//       │                        │ gpuloom.sock of its allocation
//       └── control.sock ──→ gpuloom-scheduler (started when none answers, ends when unused)
//
// It stands where the node's agent stands in a cluster: it says who the tenant is, and takes the
// allocation back when the command has ended (the scheduler does so too, should this process die).
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>

#include "agent/run/command.h"
#include "agent/run/command_line.h"
#include "agent/run/scheduler_start.h"
#include "agent/run/state_dir.h"
#include "agent/run/tenant_folder.h"
#include "proto/control/client.h"
#include "proto/wire/session.h"

namespace gpuloom::run {
namespace {

constexpr int kHostFailed = 125;  // as env(1) and docker run: not the command's own status

// Kept back for the executors' own contexts: 0.6 GiB each on real hardware.
constexpr uint64_t kReserveBytes = uint64_t{1} << 30;
constexpr uint64_t kPinnedLimitBytes = uint64_t{16} << 30;

struct Siblings {
  std::string scheduler;
  TenantLibraries libraries;
  std::string softgpu;
};

// Everything of ours lies beside this program: bin/ and lib/ of a build tree or an installation.
bool FindSiblings(Siblings* siblings, std::string* error) {
  char self[4096];
  const ssize_t size = readlink("/proc/self/exe", self, sizeof(self));
  const std::string bin(self, size > 0 ? static_cast<size_t>(size) : 0);
  const std::string folder = bin.substr(0, bin.rfind('/'));
  const std::string root = folder.substr(0, folder.rfind('/'));
  *siblings = Siblings{folder + "/gpuloom-scheduler",
                       {root + "/lib/libgpuloom.so", root + "/lib/libgpuloom-nvml.so"},
                       root + "/lib/softgpu/libcuda.so.1"};
  for (const std::string& path :
       {siblings->scheduler, siblings->libraries.cuda, siblings->libraries.nvml}) {
    if (access(path.c_str(), R_OK) != 0) {
      *error = path + " is missing: " + strerror(errno) + "; is the installation complete?";
      return false;
    }
  }
  return true;
}

uint64_t Quota(const CommandLine& line, uint64_t device_memory_bytes) {
  if (line.memory_bytes) return *line.memory_bytes;
  const uint64_t reserve = std::min(kReserveBytes, device_memory_bytes / 8);
  return (device_memory_bytes - reserve) / kSlotsPerGpu * static_cast<uint64_t>(line.slots);
}

bool Allocate(const CommandLine& line, const TenantFolder& folder, control::Client* client,
              std::string* error) {
  const uint64_t quota = Quota(line, client->device_memory_bytes());
  if (quota > client->device_memory_bytes()) {
    *error = "--memory asks for " + std::to_string(quota >> 20) + " MiB, but the GPU has " +
             std::to_string(client->device_memory_bytes() >> 20) + " MiB";
    return false;
  }
  control::AddAllocation add{};
  control::SetText(add.name, folder.name().c_str());
  if (folder.path().size() >= sizeof(add.directory)) {
    *error = "the path " + folder.path() + " is too long: choose a shorter --state-dir";
    return false;
  }
  control::SetText(add.directory, folder.path().c_str());
  add.slots = static_cast<uint32_t>(line.slots);
  add.ends_with_connection = 1;
  control::BindAllocation bind{};
  control::SetText(bind.name, folder.name().c_str());
  control::SetText(bind.pod_namespace, "local");
  control::SetText(bind.pod, folder.name().c_str());
  control::SetText(bind.pod_uid, folder.name().c_str());
  const std::string& program = line.command[0];
  control::SetText(bind.container, program.substr(program.rfind('/') + 1).c_str());
  control::SetText(bind.trust_domain, line.domain.c_str());
  bind.memory_quota_bytes = quota;
  bind.pinned_limit_bytes = kPinnedLimitBytes;
  return client->AddAllocation(add, error) && client->BindAllocation(bind, error);
}

// Says what the command has asked of CUDA that is not supported. Its last words may still be on
// their way while its sessions end.
void SayUnsupported(const std::string& name, control::Client* client) {
  constexpr int kLooks = 50;
  constexpr useconds_t kPauseUs = 5000;
  std::string error;
  std::vector<control::AllocationState> states;
  for (int look = 0; look < kLooks; ++look) {
    if (!client->connected() || !client->ListAllocations(&states, &error)) return;
    const auto ours =
        std::find_if(states.begin(), states.end(), [&](const control::AllocationState& state) {
          return name == std::string_view(state.name, control::TextLength(state.name));
        });
    if (ours == states.end()) return;
    if (ours->sessions != 0 && look + 1 < kLooks) {
      usleep(kPauseUs);
      continue;
    }
    if (ours->unsupported_count == 0) return;
    std::string names(ours->unsupported, control::TextLength(ours->unsupported));
    for (size_t at = 0; (at = names.find('\n', at)) != std::string::npos;) {
      names.replace(at, 1, at + 1 == names.size() ? "" : ", ");
    }
    fprintf(stderr, "gpuloom: %u unsupported CUDA function%s asked for: %s\n",
            ours->unsupported_count, ours->unsupported_count == 1 ? " was" : "s were",
            names.c_str());
    return;
  }
}

int Fail(const std::string& error) {
  fprintf(stderr, "gpuloom: %s\n", error.c_str());
  return kHostFailed;
}

int Main(int argc, char** argv) {
  int status = 0;
  const std::optional<CommandLine> line = ParseCommandLine(argc, argv, &status);
  if (!line) return status;

  std::string error;
  Siblings siblings;
  if (!FindSiblings(&siblings, &error)) return Fail(error);
  SchedulerPlace place;
  place.program = siblings.scheduler;
  place.softgpu = line->softgpu;
  place.gpu = line->softgpu ? "0" : line->gpu;
  place.cuda_library = line->softgpu ? siblings.softgpu : "libcuda.so.1";
  place.state_dir = !line->state_dir.empty()
                        ? line->state_dir
                        : DefaultStateDir(line->softgpu ? "softgpu" : "gpu" + line->gpu);
  if (!MakeStateDir(&place.state_dir, &error)) return Fail(error);

  TenantFolder folder;  // outlives the allocation, which lives as long as the client's connection
  control::Client client;
  // A scheduler may be about to end, unused, between our finding it and our asking: then there is
  // room for another.
  for (int attempt = 0;; ++attempt) {
    if (!ReachScheduler(place, &client, &error)) return Fail(error);
    if (!folder.made() && !folder.Make(place.state_dir, siblings.libraries, &error)) {
      return Fail(error);
    }
    if (Allocate(*line, folder, &client, &error)) break;
    if (client.connected() || attempt == 3) return Fail(error);
  }

  const std::string preload = folder.Preload(siblings.libraries.cuda, getenv("LD_PRELOAD"));
  const std::string library_path = folder.LibraryPath(getenv("LD_LIBRARY_PATH"));
  // Until here a signal simply ends us, and with us the allocation.
  BlockSignals();
  const std::string log = place.state_dir + "/scheduler.log";
  status = RunCommand(
      line->command,
      {{"LD_PRELOAD", preload},
       {"LD_LIBRARY_PATH", library_path},
       {wire::kSocketDirVariable, folder.path()}},
      client.fd(),
      [&log] { fprintf(stderr, "gpuloom: the scheduler is gone; its log is %s\n", log.c_str()); });
  SayUnsupported(folder.name(), &client);
  // That the scheduler is gone has been said; the command's status is what counts.
  if (!client.RemoveAllocation(folder.name(), &error)) client.Close();
  return status;
}

}  // namespace
}  // namespace gpuloom::run

int main(int argc, char** argv) { return gpuloom::run::Main(argc, argv); }
