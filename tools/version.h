// The version that --version prints, as in CHANGELOG.md.
#ifndef TOOLS_VERSION_H_
#define TOOLS_VERSION_H_

namespace dcp::tools {

inline constexpr char kVersion[] = "0.1.0";

}  // namespace dcp::tools

#endif  // TOOLS_VERSION_H_
