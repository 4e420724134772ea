# cmake --install: programs, man pages, systemd unit, completion for bash, rotation of logs. Honours
# DESTDIR.
if(TARGET kvcachefs)
  install(TARGETS kvcachefs RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
if(TARGET mount_helper)
  install(TARGETS mount_helper RUNTIME DESTINATION ${CMAKE_INSTALL_SBINDIR})
  # For `mount -t fuse.kvcachefs`, the type that a live mount shows in /proc/mounts.
  install(CODE "file(CREATE_LINK mount.kvcachefs
    \"\$ENV{DESTDIR}${CMAKE_INSTALL_FULL_SBINDIR}/mount.fuse.kvcachefs\" SYMBOLIC)")
endif()

file(GLOB man1 CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/packaging/man/*.1)
file(GLOB man5 CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/packaging/man/*.5)
file(GLOB man8 CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/packaging/man/*.8)
foreach(section 1 5 8)
  if(man${section})
    install(FILES ${man${section}} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section})
  endif()
endforeach()

set(unit_template ${CMAKE_SOURCE_DIR}/packaging/kvcachefs@.service.in)
if(EXISTS ${unit_template})
  configure_file(${unit_template} ${CMAKE_BINARY_DIR}/kvcachefs@.service @ONLY)
  install(FILES ${CMAKE_BINARY_DIR}/kvcachefs@.service DESTINATION lib/systemd/system)
endif()

install(FILES ${CMAKE_SOURCE_DIR}/packaging/completion/kvcachefs
        DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${CMAKE_SOURCE_DIR}/packaging/logrotate/kvcachefs
        DESTINATION ${CMAKE_INSTALL_FULL_SYSCONFDIR}/logrotate.d)
