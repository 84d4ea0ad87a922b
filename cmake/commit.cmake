# Writes OUT with the commit of SOURCE, and "-dirty" behind it if files differ from that commit.
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=12 --match "" OUTPUT_VARIABLE commit
                OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT commit)
  set(commit unknown)
endif()
file(CONFIGURE OUTPUT ${OUT} CONTENT "#define DECLOCK_COMMIT \"${commit}\"\n")
