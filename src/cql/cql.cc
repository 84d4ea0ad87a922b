#include "cql/cql.h"

#include "cql/acquire.h"
#include "cql/release.h"

namespace declock::cql {

template class CqlLock<kAllRules>;

}  // namespace declock::cql
