#include "cql/cql.h"

#include "cql/acquire.h"
#include "cql/at_once.h"
#include "cql/release.h"
#include "cql/reset.h"

namespace declock::cql {

template class CqlLock<kAllRules>;

}  // namespace declock::cql
