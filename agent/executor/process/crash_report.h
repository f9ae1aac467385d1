// SPDX-License-Identifier: Apache-2.0
// Logs a crash of the process, in our code or in the driver's: the signal, the address, the call stack. Without
// this the scheduler knows only a signal number, and driver bugs that show only on a customer's machine leave
// no trace. A hanging executor gets SIGABRT from the scheduler, and each of our threads logs where it is.
#pragma once

namespace gpuloom::executor {

// From now on, before a fatal signal ends the process, it is reported to `log_fd`, together with
// what has been written to `errors_fd` (a file; -1: none), where libraries say why they abort. The
// process still ends by the signal. Call once, before threads are started.
void ReportCrashes(int log_fd, int errors_fd);

// Call first on each of our threads that calls the driver: the thread is then reported on, too, and
// has its own stack for the report, so that a stack overflow is reported. Kept until the thread ends.
void ReserveCrashStack();

}  // namespace gpuloom::executor
