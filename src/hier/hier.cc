#include "hier/hier.h"

#include "cql/acquire.h"
#include "cql/at_once.h"
#include "cql/release.h"
#include "cql/reset.h"
#include "hier/hier_worker.h"

namespace declock::hier {

template class HierWorker<cql::kAllRules>;

}  // namespace declock::hier
