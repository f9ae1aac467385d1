// SPDX-License-Identifier: Apache-2.0
// What the sessions of one executor share. Owned by the loop, except the device; everything
// outlives the sessions. Ring thread only, except where the parts say otherwise.
#pragma once

#include <memory>

namespace gpuloom::executor {

class Chains;
class ContextMemory;
class Device;
class DomainBudget;
class DriverRoom;
class InternalStream;
class LibraryCache;
class Partitions;
class Printer;
class Quiet;
class SchedulerLink;
class SharedMemory;
class SpareGreens;
class Staging;
class Submitters;
class Tenants;
class TimeSharing;
class Tracer;
class WorkPool;

struct GraphRoom;

struct Services {
  Device* device;
  WorkPool* modules;
  WorkPool* memory;
  SchedulerLink* scheduler;
  Quiet* quiet;
  LibraryCache* libraries;
  InternalStream* internal;
  Staging* staging;
  GraphRoom* graphs;
  SpareGreens* greens;
  SharedMemory* shared;
  Printer* printer;
  Tenants* tenants;
  DriverRoom* room;
  TimeSharing* sharing;
  Partitions* partitions;
  std::shared_ptr<DomainBudget> budget;
  ContextMemory* context;
  Chains* chains = nullptr;               // null: every launch goes by itself
  Submitters* submitters = nullptr;       // null: there are none
  const bool* several_at_work = nullptr;  // whether several tenants have active sessions
  Tracer* tracer = nullptr;               // null: there is none
};

}  // namespace gpuloom::executor
