// SPDX-License-Identifier: Apache-2.0
// LibraryLog: turns messages of gRPC and protobuf into events of the server's
// own log, at a limited rate because clients can cause many. Without it the
// libraries write to standard error and wait for the process that reads it.
#ifndef SERVER_PROCESS_LIBRARY_LOG_H_
#define SERVER_PROCESS_LIBRARY_LOG_H_

namespace dcp::server {

// For the whole process. To be called before it has other threads.
void LogLibraries();

}  // namespace dcp::server

#endif  // SERVER_PROCESS_LIBRARY_LOG_H_
