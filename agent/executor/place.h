// What the sessions of one executor share. Owned by the loop, but for the device; all outlive the
// sessions. Ring thread only, but where the parts say otherwise.
#pragma once

#include "agent/executor/chain.h"
#include "agent/executor/context_memory.h"
#include "agent/executor/device.h"
#include "agent/executor/driver_room.h"
#include "agent/executor/graph.h"
#include "agent/executor/green_context.h"
#include "agent/executor/host_budget.h"
#include "agent/executor/internal_stream.h"
#include "agent/executor/library_cache.h"
#include "agent/executor/physical_memory.h"
#include "agent/executor/printer.h"
#include "agent/executor/quiet.h"
#include "agent/executor/scheduler_link.h"
#include "agent/executor/staging.h"
#include "agent/executor/stand_in.h"
#include "agent/executor/submitters.h"
#include "agent/executor/tenant.h"
#include "agent/executor/work_pool.h"

namespace gpuloom::executor {

struct Place {
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
  StandIn* stand_in;
  std::shared_ptr<DomainBudget> budget;
  ContextMemory* context;
  Chains* chains = nullptr;               // null: every launch goes by itself
  Submitters* submitters = nullptr;       // null: none
  const bool* several_at_work = nullptr;  // tenants
};

}  // namespace gpuloom::executor
