#pragma once

#include <optional>
#include <string>

#include "formats/report_html.h"

namespace fourfold {

/// The last step of rank 0's timeline as a picture, and where the time of each step went; none
/// where the run's folder has no timeline. Throws Error of kind kData where it is damaged.
std::optional<ReportSection> timeline_section(const std::string& run_dir);

}  // namespace fourfold
