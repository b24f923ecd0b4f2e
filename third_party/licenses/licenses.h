// SPDX-License-Identifier: Apache-2.0
// LicensesText: the licences for this project and for all libraries that the
// programs have linked in, as one text. Collected at build time, from Debian's
// packages. Pure; any thread.
#ifndef THIRD_PARTY_LICENSES_LICENSES_H_
#define THIRD_PARTY_LICENSES_LICENSES_H_

#include "absl/strings/string_view.h"

namespace dcp {

absl::string_view LicensesText();

}  // namespace dcp

#endif  // THIRD_PARTY_LICENSES_LICENSES_H_
