// SPDX-License-Identifier: Apache-2.0

#include "tests/testing/object_server.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "dcp/base/check.h"

extern char** environ;

namespace dcp::testing {
namespace {

constexpr char kScript[] = "tests/testing/radosgw.sh";

}  // namespace

ObjectServer& ObjectServer::Get() {
  static ObjectServer server;
  return server;
}

ObjectServer::ObjectServer() {
  int to[2];
  int from[2];
  DCP_CHECK(pipe2(to, O_CLOEXEC) == 0 && pipe2(from, O_CLOEXEC) == 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, to[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, from[1], STDOUT_FILENO);
  std::string script = kScript;
  std::string folder = dir_.Join("radosgw");
  char* arguments[] = {script.data(), folder.data(), nullptr};
  DCP_CHECK(posix_spawn(&pid_, script.c_str(), &actions, nullptr, arguments,
                        environ) == 0,
            "cannot run ", script);
  posix_spawn_file_actions_destroy(&actions);
  close(to[0]);
  close(from[1]);
  stdin_ = to[1];
  char byte;
  while (read(from[0], &byte, 1) == 1 && byte != '\n') {
    endpoint_.push_back(byte);
  }
  close(from[0]);
  DCP_CHECK(absl::StartsWith(endpoint_, "http://"), script,
            " did not start; its messages are above");
  // This machine's proxy must not be used.
  for (const char* const name :
       {"http_proxy", "HTTP_PROXY", "AWS_PROFILE", "AWS_ENDPOINT_URL_S3",
        "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION"}) {
    unsetenv(name);
  }
  setenv("AWS_ENDPOINT_URL", endpoint_.c_str(), 1);
  setenv("AWS_ACCESS_KEY_ID", "tessera", 1);
  setenv("AWS_SECRET_ACCESS_KEY", "tesserasecret", 1);
}

ObjectServer::~ObjectServer() {
  close(stdin_);
  waitpid(pid_, nullptr, 0);
}

std::string ObjectServer::tls_endpoint() const {
  const std::string text = ReadFile(dir_.Join("radosgw/tls"));
  return text.substr(0, text.find('\n'));
}

void ObjectServer::RestartGateway() {
  int pid = 0;
  DCP_CHECK(absl::SimpleAtoi(ReadFile(dir_.Join("radosgw/gateway.pid")), &pid));
  DCP_CHECK(kill(pid, SIGKILL) == 0);
  dir_.WriteFile("radosgw/restart", "");
}

}  // namespace dcp::testing
