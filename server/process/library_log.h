// SPDX-License-Identifier: Apache-2.0
// LibraryLog: what gRPC and protobuf have to say becomes events of the server's
// own log, at a limited rate because clients can cause many. Without it they
// write to standard error themselves and wait for whoever reads it.
#ifndef SERVER_PROCESS_LIBRARY_LOG_H_
#define SERVER_PROCESS_LIBRARY_LOG_H_

namespace dcp::server {

// For the whole process. To be called before it has other threads.
void LogLibraries();

}  // namespace dcp::server

#endif  // SERVER_PROCESS_LIBRARY_LOG_H_
