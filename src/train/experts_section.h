#pragma once

#include "formats/report_html.h"
#include "train/run_curves.h"

namespace fourfold {

/// How evenly the experts of each layer were used; for a run that has metrics of routers.
ReportSection experts_section(const MoeSpec& moe, const RunCurves& curves);

}  // namespace fourfold
