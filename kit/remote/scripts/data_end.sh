# Ends the stagings of a cluster on this VM. Arguments: CLUSTER. Needs end_stagers.sh before it.
end_stagers "$1"
