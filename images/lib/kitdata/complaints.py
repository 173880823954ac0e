"""What rclone's messages mean for a source, in one plain line without secrets. Pure."""

import re
from typing import List, Mapping, Set

from kitdata.source import SourceError

# (what rclone or a store says, kind, meaning), of which the first that a message has counts. %s is the source as in
# kit.yaml. The codes are those of S3 and stores like it, of Google Cloud Storage, and of Azure.
_MEANINGS = (
    ("SignatureDoesNotMatch", "source-refused", "%s refuses: the secret key is wrong"),
    ("InvalidAccessKeyId|InvalidClientTokenId", "source-refused", "%s refuses: it does not know this access key"),
    ("ExpiredToken|TokenRefreshRequired|RequestExpired", "source-refused", "%s refuses: the session token has expired"),
    ("InvalidToken", "source-refused", "%s refuses: the session token is wrong"),
    ("RequestTimeTooSkewed", "source-refused", "%s refuses: the clock of this host is wrong"),
    (
        "AuthenticationFailed|InvalidAuthenticationInfo|invalid_grant|Invalid Credentials|illegal base64",
        "source-refused",
        "%s refuses: the credentials are wrong",
    ),
    (
        "get credentials:|could not find default credentials|ManagedIdentityCredential|DefaultAzureCredential"
        "|no credentials",
        "source-refused",
        "%s refuses: there are no credentials, and this host has no role that the store knows",
    ),
    (
        "AccessDenied|AccountProblem|AllAccessDisabled|AuthorizationFailure|AuthorizationPermissionMismatch"
        "|PublicAccessNotPermitted|NoAuthenticationInformation|insufficientPermissions|StatusCode: 40[13]"
        "|RESPONSE 40[13]|Error 40[13]|HTTP Error:? 40[13]|error 40[13]|: 40[13] |Forbidden|permission denied",
        "source-refused",
        "%s refuses: these credentials may not read it",
    ),
    (
        "NoSuchBucket|ContainerNotFound|ResourceNotFound|bucket (?:doesn't|does not) exist|directory not found"
        "|container (?:doesn't|does not) exist|HTTP Error:? 404|StatusCode: 404|Error 404",
        "source-missing",
        "%s is not there",
    ),
    (
        '(x509: [^"\n]*|tls: [^"\n]*certificate[^"\n]*)',
        "source-lost",
        "%s does not answer: its TLS certificate is not trusted",
    ),
    ("server gave HTTP response to HTTPS client", "source-lost", "%s does not answer: the endpoint has no TLS"),
    ("(no such host|server misbehaving)", "source-lost", "%s does not answer: its name cannot be found"),
    ("connection refused", "source-lost", "%s does not answer: the connection is refused"),
    (
        "i/o timeout|Client\\.Timeout|deadline exceeded|TLS handshake timeout",
        "source-lost",
        "%s does not answer: nothing came within the time limit",
    ),
    ("(network is unreachable|no route to host)", "source-lost", "%s does not answer: no way leads there"),
    (
        "SlowDown|TooManyRequests|StatusCode: 503|StatusCode: 429|HTTP Error:? (?:503|429)",
        "source-lost",
        "%s does not answer: it gets too many requests",
    ),
    (
        "didn't find (?:section|backend)|failed to create file system|not found in config|couldn't decode|"
        "failed to make Fs|invalid character in|unknown type",
        "source-refused",
        "rclone cannot use the settings of %s",
    ),
)
_MEANINGS_COMPILED = tuple((re.compile(words), kind, text) for words, kind, text in _MEANINGS)
# The code that a store gives, for those who look it up.
_CODE = re.compile(r"api error (\w+)|ERROR CODE: (\w+)|\b(x509: [^\"\n]{1,150})")
_WHEN = re.compile(r"^\d{4}/\d\d/\d\d \d\d:\d\d:\d\d (?:[A-Z]+ *: )?", re.MULTILINE)
# Signatures and passwords are in addresses.
_QUERY = re.compile(r"\?[^\s\"']*")
_USER = re.compile(r"(\w+://)[^\s/@\"']*@")
# Options that hold no secret. Of all others, a message shows no value.
_OPEN = re.compile(
    r"RCLONE_CONFIG_[A-Z0-9_]*_(?:TYPE|PROVIDER|REGION|ENDPOINT|ENV_AUTH|REMOTE|(?<!SAS_)URL|ACCOUNT|HOST|PORT|USER|UPSTREAMS)"
)
# A shorter value would blank out words by chance.
_SHORTEST = 4


def meaning(message: str, label: str, env: Mapping[str, str]) -> SourceError:
    """Return what a message of rclone means. `env` has the source's settings, which the text must not show."""
    cleaned = clean(message, env)
    for pattern, kind, text in _MEANINGS_COMPILED:
        if pattern.search(cleaned):
            match = _CODE.search(cleaned)
            code = next((group for group in match.groups() if group), "") if match else ""
            return SourceError(kind, text % label + (" (%s)" % code if code else ""))
    lines = [line for line in cleaned.splitlines() if line.strip()]
    return SourceError(
        "source-lost", "%s cannot be read: %s" % (label, lines[-1][:300] if lines else "no reason given")
    )


def clean(message: str, env: Mapping[str, str]) -> str:
    """Return a message without the values of secret settings, queries and users of addresses, and dates."""
    for value in _secrets(env):
        message = message.replace(value, "***")
    message = _WHEN.sub("", message)
    message = _USER.sub(r"\1", _QUERY.sub("", message))
    return "".join(letter if letter.isprintable() or letter == "\n" else " " for letter in message)


def _secrets(env: Mapping[str, str]) -> List[str]:
    values: Set[str] = set()
    for name, value in env.items():
        if not _OPEN.fullmatch(name):
            # A key of Google is JSON, and each of its lines may be quoted alone.
            values.update(part for part in (value, *value.splitlines()) if len(part) >= _SHORTEST)
    values -= {"true", "false"}
    return sorted(values, key=len, reverse=True)
