// What every public header needs: the version, and what the shared library exports.
#ifndef DECLOCK_CONFIG_H
#define DECLOCK_CONFIG_H

#define DECLOCK_VERSION_MAJOR 0
#define DECLOCK_VERSION_MINOR 1
#define DECLOCK_VERSION_PATCH 0

#define DECLOCK_EXPORT [[gnu::visibility("default")]]

#endif
