// SPDX-License-Identifier: Apache-2.0
// Logs a crash of the process, in our code or in the driver's: the signal, the address, the call stack. Without this
// the scheduler knows only a signal number, and driver bugs that occur only on a customer's machine leave no trace. A
// hanging executor gets SIGABRT from the scheduler, and each of our threads logs where it is.
#pragma once

namespace gpuloom::executor {

// From this call on, a fatal signal is reported to `log_fd` before it ends the process, together with what has been
// written to `errors_fd` (a file; -1: none), where libraries say why they abort. The process still ends by the signal.
// Call once, before threads are started.
void ReportCrashes(int log_fd, int errors_fd);

// Call first on each of our threads that calls the driver. The thread is then included in reports, and has its own
// stack for the report, so that a stack overflow is reported, too. Kept until the thread ends.
void ReserveCrashStack();

}  // namespace gpuloom::executor
