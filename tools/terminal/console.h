// SPDX-License-Identifier: Apache-2.0
// Console: the streams of a command and whether they are a terminal, so that
// commands run in tests as they do in a terminal. Results go to `out`, progress
// and errors to `err`.
#ifndef TOOLS_TERMINAL_CONSOLE_H_
#define TOOLS_TERMINAL_CONSOLE_H_

#include <ostream>

namespace dcp::tools {

// The streams outlive it.
struct Console {
  std::ostream& out;
  std::ostream& err;
  bool err_is_terminal = false;
  int err_width = 80;  // columns, if it is a terminal
  // The descriptor that receives a checkpoint written to standard output;
  // negative for none.
  int out_descriptor = -1;
};

}  // namespace dcp::tools

#endif  // TOOLS_TERMINAL_CONSOLE_H_
