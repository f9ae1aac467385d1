// SPDX-License-Identifier: Apache-2.0
// Order between an event and all of a context: cuCtxRecordEvent and cuCtxWaitEvent.
//
// A record comes after everything in the context's streams: an internal stream waits for each of
// them, and the event is recorded there. For a wait, a second internal stream waits for the event,
// and an event recorded after that is what every stream of the context waits for, including those
// made later. The legacy default stream is reached through a third one, which is a blocking stream,
// so that no two of the program's streams come to wait for each other. All of this uses existing
// stream and event commands; it adds nothing to launches.
//
// Created contexts share the default streams with the primary one (context.h), so records and waits
// of each affect these. A green context's default stream is among its streams. Safe from any
// thread.
#pragma once

#include "proto/cuda/cuda_all.h"
#include "proto/wire/handles.h"

namespace gpuloom {

struct Context;

// Orders a new stream after what its context waits for; without a context, after what any waits
// for.
[[nodiscard]] CUresult OrderNewStream(wire::StreamId stream, CUcontext context);

// The context is destroyed; its work is done.
void ForgetContextOrder(CUcontext context);
// For a reset of the primary context: all streams and events are gone.
void ForgetAllContextOrders();

}  // namespace gpuloom
