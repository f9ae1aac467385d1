// SPDX-License-Identifier: Apache-2.0
// What the executor's log says when the process crashes, in our code or in the driver's: the signal,
// the address, the calls that led there. Without it the scheduler knows a signal's number only, and
// what a driver does wrong shows on a customer's machine alone. An executor that hangs gets SIGABRT from the
// scheduler, and each of our threads says where it is.
#pragma once

namespace gpuloom::executor {

// From now on a signal that ends the process with a crash is reported to `log_fd` first, with what
// has been written to `errors_fd` (a file; -1: none), where libraries say why they give up. The
// process ends by the signal all the same. Call once, before threads are started.
void ReportCrashes(int log_fd, int errors_fd);

// A thread of ours that calls the driver calls this first: it is asked, too, and has a stack of its own for
// the report, so that overflowing the other one is reported. Kept until the thread ends.
void ReserveCrashStack();

}  // namespace gpuloom::executor
