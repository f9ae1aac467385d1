// SPDX-License-Identifier: Apache-2.0
// Order between an event and all of a context: cuCtxRecordEvent and cuCtxWaitEvent.
//
// A record is behind everything the context's streams hold: a stream of our own waits for each of
// them, and the event is recorded there. A wait is a second stream of our own that waits for the
// event, and an event recorded behind it that every stream of the context waits for, those made
// later included. The legacy default stream is reached through a third one that is a blocking
// stream, so that no two of the program's streams come to wait for each other. All of it is made of
// commands that streams and events have anyway; nothing is done on the path of launches.
//
// Created contexts share the default streams with the primary one (context.h), so records and waits
// of each concern these. A green context's default stream is among its streams. Safe from any
// thread.
#pragma once

#include "proto/cuda/cuda_all.h"
#include "proto/wire/handles.h"

namespace gpuloom {

struct Context;

// A new stream goes behind what its context waits for; without a context behind what any waits for.
[[nodiscard]] CUresult OrderNewStream(wire::StreamId stream, CUcontext context);

// The context is destroyed; its work is done.
void ForgetContextOrder(CUcontext context);
// For the reset of the primary context: all streams and events are gone.
void ForgetAllContextOrders();

}  // namespace gpuloom
