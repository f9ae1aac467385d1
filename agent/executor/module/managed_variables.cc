// SPDX-License-Identifier: Apache-2.0
// Libraries with `__managed__` variables: they are loaded when the tenant has given those a place.
#include <string_view>

#include "agent/executor/device/device.h"
#include "agent/executor/module/loading.h"

namespace gpuloom::executor {

// The variables are where their initial values are written, or in the space for memory that migrates. What the device
// finds there is the tenant's affair (ManagedMap): the driver relocates code to any address.
template <typename C>
void LibraryLoader::Place(const typename C::Request& request, uint64_t place, uint64_t values,
                          const wire::Record& record) {
  Library* library = libraries_.Find(request.library);
  if (library == nullptr || library->placing == nullptr) return Refuse(wire::Fatal::kBadHandle);
  const ManagedImage& image = *library->placing->managed;
  if (place % wire::kManagedAlignBytes != 0) return Refuse(wire::Fatal::kBadArgument);
  // Registered, so that kernels can reach it.
  if (!OwnsHost(values, image.size_bytes()) ||
      (place != values && !host_->managed.Contains(place, image.size_bytes()))) {
    return Refuse(wire::Fatal::kBadRange);
  }
  auto loading = std::exchange(library->placing, nullptr);
  library->managed = image.VariablesAt(place);
  modules_.Post([loading, host = host_, place, values,
                 &cuda = services_.device->cuda()] { loading->LoadAt(cuda, *host, place, values); },
                // Releases the arena, on this thread.
                [this, loading, caller = CallerOf(record), held = host_] {
                  HoldLibrary(loading.get());
                  if (loading->library != nullptr) {
                    // The driver reads names and addresses from there when a kernel is first
                    // requested.
                    loading->library->kept = std::move(loading->managed);
                  }
                  if (!serving()) return;
                  AnswerLoad<C>(caller, *loading, {loading->kernel_count, 0});
                });
}

void LibraryLoader::On(wire::Tag<wire::LibraryPlace>, const wire::LibraryPlace::Request& request,
                       const wire::Record& record) {
  const auto place = static_cast<uint64_t>(request.place);
  Place<wire::LibraryPlace>(request, place, place, record);
}

void LibraryLoader::On(wire::Tag<wire::LibraryPlaceApart>,
                       const wire::LibraryPlaceApart::Request& request,
                       const wire::Record& record) {
  Place<wire::LibraryPlaceApart>(request, static_cast<uint64_t>(request.place),
                                 static_cast<uint64_t>(request.values), record);
}

void LibraryLoader::On(wire::Tag<wire::ManagedGet>, const wire::ManagedGet::Request& request,
                       const wire::Record& record) {
  const Library* library = loaded_->FindLibrary(request.library);
  if (library == nullptr) return;
  const std::string_view name(reinterpret_cast<const char*>(record.payload.data()),
                              record.payload.size());
  for (const ManagedImage::Services& place : library->managed) {
    if (place.name != name) continue;
    return Reply<wire::ManagedGet>(CallerOf(record), CUDA_SUCCESS,
                                   {wire::HostPtr{place.address}, place.size_bytes});
  }
  Reply<wire::ManagedGet>(CallerOf(record), CUDA_ERROR_NOT_FOUND);
}

}  // namespace gpuloom::executor
