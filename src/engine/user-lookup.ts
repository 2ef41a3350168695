/**
 * Shell functions. All their variables begin with `BERTHZ_`.
 *
 * - `U user` looks a user (`name`, `uid`, `name:group`, `uid:gid`) up in the sandbox's own files as Docker does
 *   (https://github.com/moby/sys/blob/main/user/user.go, `GetExecUser`), and sets `BERTHZ_UID`, `BERTHZ_GID`,
 *   `BERTHZ_GROUPS` (each with a comma before it) and `BERTHZ_HOME`. It fails for an unknown user, and for unusual
 *   spellings.
 * - `D text` fails unless the text is a plain decimal number.
 */
export const LOOK_UP_USER = `D() { case $1 in ''|*[!0-9]*|0?*|??????????*) return 1 ;; esac; }
U() {
  BERTHZ_UID= BERTHZ_GID=0 BERTHZ_GROUPS= BERTHZ_HOME=/ BERTHZ_NAME= BERTHZ_SEEN=' ' BERTHZ_GROUP=
  case $1 in
    *:*:*|:*|*:|[+-]*|*:[+-]*) return 1 ;;
    *:*) BERTHZ_GROUP=\${1#*:}; set -- "\${1%%:*}" ;;
  esac
  case $1 in *[!0-9]*) ;; *) D "$1" || return 1; BERTHZ_UID=$1 ;; esac
  [ -f /etc/passwd ] || [ ! -e /etc/passwd ] || return 1
  [ ! -e /etc/passwd ] || while IFS=: read -r BERTHZ_A BERTHZ_X BERTHZ_B BERTHZ_C BERTHZ_X BERTHZ_D BERTHZ_X || [ "$BERTHZ_A" ]; do
    [ "$BERTHZ_A$BERTHZ_B" ] || continue
    case $BERTHZ_A$BERTHZ_D in *[[:space:]]*) return 1 ;; esac
    D "$BERTHZ_B" && D "$BERTHZ_C" || return 1
    if [ "$BERTHZ_UID" = "$BERTHZ_B" ] || { [ ! "$BERTHZ_UID" ] && [ "$BERTHZ_A" = "$1" ]; }; then
      BERTHZ_UID=$BERTHZ_B BERTHZ_GID=$BERTHZ_C BERTHZ_NAME=$BERTHZ_A BERTHZ_HOME=$BERTHZ_D
      break
    fi
    BERTHZ_SEEN="$BERTHZ_SEEN$BERTHZ_B "
  done </etc/passwd
  [ "$BERTHZ_UID" ] || return 1
  case $BERTHZ_SEEN in *" $BERTHZ_UID "*) return 1 ;; esac
  case $BERTHZ_GROUP in
    '') [ "$BERTHZ_NAME" ] || return 0 ;;
    *[!0-9]*) ;;
    *) D "$BERTHZ_GROUP" || return 1; BERTHZ_GID=$BERTHZ_GROUP ;;
  esac
  [ -f /etc/group ] || [ ! -e /etc/group ] || return 1
  [ ! -e /etc/group ] || while IFS=: read -r BERTHZ_A BERTHZ_X BERTHZ_B BERTHZ_D || [ "$BERTHZ_A" ]; do
    [ "$BERTHZ_A$BERTHZ_B" ] || continue
    case $BERTHZ_A$BERTHZ_D in *[[:space:]]*) return 1 ;; esac
    D "$BERTHZ_B" || return 1
    if [ ! "$BERTHZ_GROUP" ]; then
      case ",$BERTHZ_D," in *",$BERTHZ_NAME,"*) BERTHZ_GROUPS=$BERTHZ_GROUPS,$BERTHZ_B ;; esac
    elif [ "$BERTHZ_GROUP" = "$BERTHZ_A" ]; then
      # Docker takes a number for the group of that name in part only.
      D "$BERTHZ_GROUP" && return 1
      BERTHZ_GID=$BERTHZ_B
      return 0
    fi
  done </etc/group
  case $BERTHZ_GROUP in *[!0-9]*) return 1 ;; esac
}
`;
